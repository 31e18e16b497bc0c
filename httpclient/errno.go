//go:build !plan9

package httpclient

import "syscall"

// unreachableErrnos is for dialers that return them without a *net.OpError of
// "dial", and for QUIC, where a refusal comes back on a read.
var unreachableErrnos = [...]error{
	syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
}
