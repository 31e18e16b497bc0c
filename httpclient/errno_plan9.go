package httpclient

// unreachableErrnos is empty: Plan 9 has strings for errors, not numbers, and
// its dialer wraps them as any other does.
var unreachableErrnos []error
