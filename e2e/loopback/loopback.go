// Package loopback finds free addresses for the processes that the commands start.
package loopback

import "net"

// FreeAddress returns a loopback address with a port on which nothing is listening.
func FreeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
