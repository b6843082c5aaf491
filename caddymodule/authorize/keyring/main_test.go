package keyring

import (
	"crypto/rand"
	"crypto/rsa"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// TestMain lets keyrings take turns among a few RSA keys. Those that follow each other differ.
func TestMain(m *testing.M) {
	const few = 4
	var keys [few]func() (*rsa.PrivateKey, error)
	for i := range keys {
		keys[i] = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })
	}
	var turn atomic.Uint32
	generateRSA = func(io.Reader, int) (*rsa.PrivateKey, error) { return keys[turn.Add(1)%few]() }
	os.Exit(m.Run())
}
