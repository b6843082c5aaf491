package bearer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// TestWarnOfNamesakes: a rule that says not whose groups it means is warned of, where there are two who could tell.
func TestWarnOfNamesakes(t *testing.T) {
	t.Parallel()
	two := []TrustedIssuer{{}, {}}
	for _, tt := range []struct {
		name, rule string
		trust      []TrustedIssuer
		asked      *Introspection
		warns      bool
	}{
		{"groups", "'doctors' in token.groups", two, nil, true},
		{"claims", "'7' in token.claims['ward']", two, nil, true},
		{"an issuer and introspection", "'doctors' in token.groups", two[:1], &Introspection{}, true},
		{"introspection of an issuer's tokens", "'doctors' in token.groups", two[:1], &Introspection{All: true}, false},
		{"one issuer", "'doctors' in token.groups", two[:1], nil, false},
		{"whose", "token.issuer == 'https://h.example' && 'doctors' in token.groups", two, nil, false},
		{"at whose idp", "token.idp == 'h' && 'doctors' in token.groups", two, nil, false},
		{"neither", "token.client_id == 'app'", two, nil, false},
	} {
		var log bytes.Buffer
		h := Bearer{Trust: tt.trust, Introspection: tt.asked}
		h.Policies = []AccessPolicy{{PolicyRule: enforce.PolicyRule{Effect: "allow", Name: "mine", Expression: tt.rule}}}
		ours, others := h.tellers(nil)
		warnOfNamesakes(slog.New(slog.NewTextHandler(&log, nil)), h.Policies, ours, others)
		if warned := strings.Contains(log.String(), "policy=mine"); warned != tt.warns {
			t.Errorf("%s: %q", tt.name, log.String())
		}
	}
}

// TestUnreadIsLogged: with the names of claims and the person; what other errors say is left out.
func TestUnreadIsLogged(t *testing.T) {
	t.Parallel()
	repl := caddy.NewReplacer()
	repl.Set("http.auth.user.id", "alice")
	r := httptest.NewRequest("GET", "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl))
	var log bytes.Buffer
	failed := policyFailed(slog.New(slog.NewTextHandler(&log, nil)))
	failed(r, fmt.Errorf("rule vip: %w: ward", tokenclaim.ErrUnread))
	if text := log.String(); !strings.Contains(text, "user=alice") || !strings.Contains(text, "rule vip: ") || !strings.Contains(text, "ward") {
		t.Errorf("%q", text)
	}
	log.Reset()
	if failed(r, errors.New("rule vip: secret")); strings.Contains(log.String(), "secret") {
		t.Errorf("%q", log.String())
	}
}
