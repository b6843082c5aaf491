package providertest

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"
)

// BlackHole returns a loopback host:port that drops SYNs until the test ends, like a firewall. It listens with a full backlog
// and never accepts connections.
func BlackHole(tb testing.TB) string {
	tb.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(os.NewSyscallError("socket", err))
	}
	tb.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatal(os.NewSyscallError("bind", err))
	}
	if err := syscall.Listen(fd, 0); err != nil {
		tb.Fatal(os.NewSyscallError("listen", err))
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		tb.Fatal(os.NewSyscallError("getsockname", err))
	}
	own := name.(*syscall.SockaddrInet4)
	address := netip.AddrPortFrom(netip.AddrFrom4(own.Addr), uint16(own.Port)).String()
	fillBacklog(tb, address)
	return address
}

// fillBacklog connects to an address until connections are no longer accepted. With a backlog of 0, Linux accepts one.
func fillBacklog(tb testing.TB, address string) {
	tb.Helper()
	for range 8 {
		conn, err := net.DialTimeout("tcp", address, 50*time.Millisecond)
		if err != nil {
			return
		}
		tb.Cleanup(func() { _ = conn.Close() })
	}
	tb.Fatal("listen backlog is not full: connections are still accepted")
}
