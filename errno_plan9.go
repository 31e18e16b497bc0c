package agilelimiter

// Plan 9 has strings for errors, not numbers, and its dialer wraps them as any
// other does.
var connectErrnos, networkErrnos [0]error
