// Package rsakey makes the RSA keys that sign ID tokens.
package rsakey

import (
	"crypto/rand"
	"crypto/rsa"
)

// New makes a key of 2,048 bits. That takes a tenth of a second: tests, which make hundreds, put keys in its place
// that they made before. Nothing else may set it.
var New = func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) }
