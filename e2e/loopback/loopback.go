// Package loopback finds addresses for the processes that the commands start.
package loopback

import "net"

// FreeAddress is one on loopback that nobody listens at, for now.
func FreeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
