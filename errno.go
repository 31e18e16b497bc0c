//go:build !plan9

package agilelimiter

import "syscall"

// The errors of the system calls that mean that the network failed, for those
// who return them without a *net.OpError. connectErrnos say that there was no
// connection.
var (
	connectErrnos = [...]error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH}
	networkErrnos = [...]error{syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE}
)
