package relyingparty_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

func TestProviderErrorCode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		fault         providertest.Fault
		google, other string
	}{
		{"RFC code", providertest.ErrorResponse(400, "invalid_grant"), "Google Error - 400 invalid_grant", "Google Error - 400 error getting token"},
		{"no code", providertest.Status(502), "Google Error - 502 error getting token", "Google Error - 502 error getting token"},
		{"code with a line break", providertest.ErrorResponse(400, "a\r\nb"), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"code with a quote", providertest.ErrorResponse(400, `a"b`), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"code with a letter of no ASCII", providertest.ErrorResponse(400, "é"), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"long code", providertest.ErrorResponse(400, strings.Repeat("x", 101)), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"code of another type", providertest.JSON(400, map[string]any{"error": map[string]any{"code": 400}}), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"an API's status", providertest.JSON(503, []byte(`{"error":{"code":503,"message":"The service is currently unavailable.","status":"UNAVAILABLE"}}`)), "Google Error - 503 UNAVAILABLE", "Google Error - 503 error getting token"},
		{"an API's status and reason", providertest.JSON(503, []byte(`{"error":{"code":503,"errors":[{"domain":"global","reason":"backendError"}],"status":"UNAVAILABLE"}}`)), "Google Error - 503 UNAVAILABLE", "Google Error - 503 error getting token"},
		{"an API's reason", providertest.JSON(401, []byte(`{"error":{"errors":[{"domain":"global","reason":"authError"},{"reason":"other"}],"code":401,"message":"Invalid Credentials"}}`)), "Google Error - 401 authError", "Google Error - 401 error getting token"},
		{"an API's status with markup", providertest.JSON(400, []byte(`{"error":{"status":"\"\r\n<b>"}}`)), "Google Error - 400 error getting token", "Google Error - 400 error getting token"},
		{"an API's status with 200", providertest.JSON(200, []byte(`{"error":{"status":"UNAVAILABLE"}}`)), "Google Error - 200 error getting token", "Google Error - 200 error getting token"},
		{"in HTML", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502); providertest.HTML(w, r) }, "Google Error - 502 error getting token", "Google Error - 502 error getting token"},
		{"in a form", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-www-form-urlencoded")
			w.WriteHeader(400)
			_, _ = io.WriteString(w, "error=invalid_grant&error_description=x")
		}, "Google Error - 400 invalid_grant", "Google Error - 400 error getting token"},
		{"with 200", providertest.ErrorResponse(200, "slow_down"), "Google Error - 200 slow_down", "Google Error - 200 error getting token"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			idp := providertest.Start(t)
			idp.Fail(providertest.Token, tt.fault)
			err := failedSignIn(t, idp, 0)
			if got := describe(err, "Google", true); got != tt.google {
				t.Errorf("Google: %q", got)
			}
			if got := describe(err, "Google", false); got != tt.other {
				t.Errorf("other: %q", got)
			}
			if text := err.Error(); strings.ContainsAny(text, "\r\n") || len(text) > 700 {
				t.Errorf("for the log: %q", text)
			}
		})
	}
}

func TestDescriptionCharset(t *testing.T) {
	t.Parallel()
	e := &relyingparty.Error{Kind: relyingparty.Refused, Status: 500}
	if got, _ := e.Description("Klinikum \"Köln\"\r\n", false); got != "Klinikum ?K?ln??? Error - 500 error getting token" {
		t.Errorf("%q", got)
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for kind, want := range map[relyingparty.Kind]string{
		relyingparty.TokenTimeout: "token time-out: cause", relyingparty.KeysTimeout: "keys time-out: cause",
		relyingparty.Refused: "refused: cause", relyingparty.Reset: "connection reset: cause",
		relyingparty.ReadTimeout: "read time-out: cause", relyingparty.Declined: "declined: cause", 0: "kind 0: cause",
	} {
		err := &relyingparty.Error{Kind: kind, Err: cause}
		if err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%q, want %q", err, want)
		}
	}
	if got := (&relyingparty.Error{Kind: relyingparty.Reset}).Error(); got != "connection reset" {
		t.Error(got)
	}
}
