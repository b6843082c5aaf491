package endpoint

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// Every served path has a separate metric name.
func TestEndpointsAreMeasured(t *testing.T) {
	for path, want := range map[string]string{
		"/oauth2/token": "token", "/oauth2/login/hospital": "login", "/oauth2/callback/hospital": "callback",
		"/.well-known/jwks.json": "jwks.json", "/fhir/R4/.well-known/smart-configuration": "smart-configuration",
	} {
		if got := Name(path); got != want || !slices.Contains(Names(), got) {
			t.Errorf("%s is measured as %q", path, got)
		}
	}
}

// Errors after the client has disconnected are not logged as failures. Errors of operations that the gateway has canceled are.
func TestDisconnectedClientIsNoFailure(t *testing.T) {
	t.Parallel()
	for disconnected, level := range map[bool]string{true: "INFO", false: "ERROR"} {
		var log bytes.Buffer
		ctx, leave := context.WithCancel(t.Context())
		if disconnected {
			leave()
		}
		rs := &Responder{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		rs.WriteError(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, Token, nil), context.Canceled)
		leave()
		if !strings.Contains(log.String(), "level="+level) {
			t.Errorf("disconnected: %v; logged %q", disconnected, log.String())
		}
	}
}
