package redisstore

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Errors for operators refer only to existing options.
func TestCheckFailureOfCertificate(t *testing.T) {
	t.Parallel()
	err := checkError(t.Context(), &tls.CertificateVerificationError{Err: errors.New("unknown authority")})
	if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "(tls_ca)") || strings.Contains(err.Error(), "server_name") {
		t.Error(err)
	}
}

type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// Error responses are classified correctly, including responses from servers older than 7.0.
func TestFailures(t *testing.T) {
	t.Parallel()
	const wrapped = "ERR Error running script (call to f_4d): @user_script:96: @user_script: 96: -"
	for _, tt := range []struct {
		name   string
		answer serverError
		want   error
	}{
		{"full", "OOM command not allowed when used memory > 'maxmemory'.", store.ErrFull},
		{"full, 6.2", wrapped + "OOM command not allowed when used memory > 'maxmemory'. ", store.ErrFull},
		{"replica", "READONLY You can't write against a read only replica.", store.ErrUnavailable},
		{"replica, 6.2", wrapped + "READONLY You can't write against a read only replica. ", store.ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := convertError(t.Context(), tt.answer); !errors.Is(err, tt.want) {
				t.Errorf("it means %v, want %v", err, tt.want)
			}
		})
	}
}
