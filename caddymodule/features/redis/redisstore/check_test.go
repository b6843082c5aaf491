package redisstore

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
)

// Errors for operators name options that exist.
func TestCheckFailureOfCertificate(t *testing.T) {
	t.Parallel()
	err := checkFailure(t.Context(), &tls.CertificateVerificationError{Err: errors.New("unknown authority")})
	if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "(tls_ca)") || strings.Contains(err.Error(), "server_name") {
		t.Error(err)
	}
}
