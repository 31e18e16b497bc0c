package httpdebug

import "unsafe"

const (
	RingPoints   = ringPoints
	RecorderSize = unsafe.Sizeof(recorder{})
)

var (
	Reasons = reasons
	Weight  = weight
)
