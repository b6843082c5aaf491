package fhirerror

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	secret := errors.New("dial tcp 10.0.0.7:5432: connection refused")
	tests := []struct {
		name   string
		err    error
		status int
		code   string
		text   string
	}{
		{"our refusal", caddyhttp.Error(401, &guard.Error{Status: 401, Description: "An access token is required."}), 401, "login", "An access token is required."},
		{"a failed expansion", caddyhttp.Error(422, &outcome.Error{Status: 422, Code: "too-costly", Text: "too many"}), 422, "too-costly", "too many"},
		{"the proxy's 502", caddyhttp.Error(502, secret), 502, "transient", issuesByStatus[502].text},
		{"the proxy's 504", caddyhttp.Error(504, secret), 504, "timeout", issuesByStatus[504].text},
		{"a status of no special meaning", caddyhttp.Error(418, secret), 418, "processing", "I'm a teapot"},
		{"no status", secret, 500, "exception", issuesByStatus[500].text},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, text, err := encodeOutcome(tt.err)
			var outcome operationOutcome
			if err := errors.Join(err, json.Unmarshal(text, &outcome)); err != nil || len(outcome.Issue) != 1 {
				t.Fatalf("%s: %v", text, err)
			}
			issue := outcome.Issue[0]
			if status != tt.status || issue.Code != tt.code || issue.Diagnostics != tt.text {
				t.Errorf("%d %+v", status, issue)
			}
		})
	}
}
