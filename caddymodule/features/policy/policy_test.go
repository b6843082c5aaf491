package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// TestAmbiguousClaims checks that a rule over groups or claims that does not name their provider causes a warning if there
// are several.
func TestAmbiguousClaims(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, expression   string
		providers, issuers int
		warns              bool
	}{
		{"groups", "'doctors' in token.groups", 0, 2, true},
		{"claims", "'7' in token.claims['ward']", 0, 2, true},
		{"one issuer", "'doctors' in token.groups", 0, 1, false},
		{"the issuer is named", "token.issuer == 'https://h.example' && 'doctors' in token.groups", 1, 1, false},
		{"the issuer of several providers is named", "token.issuer == 'https://h.example' && 'doctors' in token.groups", 2, 0, true},
		{"the provider is named", "token.idp == 'h' && 'doctors' in token.groups", 2, 2, false},
		{"neither", "token.client_id == 'app'", 0, 2, false},
	} {
		var log bytes.Buffer
		p := Policy{Rules: []Rule{{Effect: rule.Allow, Name: "mine", Expression: tt.expression}}}
		site := bearer.Site{Providers: tt.providers, Issuers: tt.issuers, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		if _, err := p.Policy(site); err != nil || strings.Contains(log.String(), "policy=mine") != tt.warns {
			t.Errorf("%s: %v, %q", tt.name, err, log.String())
		}
	}
}

// TestSubdirectives checks that rules keep their order, name and place, and that invalid ones are rejected.
func TestSubdirectives(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ block, want, err string }{
		"rules":                 {"deny \"request.type == 'Patient'\"\nallow mine true\ndeny false", "deny , allow mine, deny ", ""},
		"an unknown field":      {"deny \"request.typo == 'x'\"", "", "deny: "},
		"an expression of text": {"deny \"'x'\"", "", "deny: "},
		"no expression":         {"deny", "", "wrong argument count"},
		"too many words":        {"allow a b c", "", "wrong argument count"},
	} {
		p := new(Policy)
		fields, repeatable := p.Subdirectives()
		d := caddyfile.NewTestDispenser("fhir_bearer {\n" + tt.block + "\n}")
		d.Next()
		err := fields.Parse(d, repeatable...)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "Testfile:2") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var rules []string
		for _, r := range p.Rules {
			rules = append(rules, string(r.Effect)+" "+r.Name)
		}
		if got := strings.Join(rules, ", "); err != nil || got != tt.want || p.Rules[1].Source.Source != "Testfile:3" {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
}

// TestNewInput checks what rules see of a request: claims that the configuration names have no values if the token lacks
// them, and others do not exist.
func TestNewInput(t *testing.T) {
	t.Parallel()
	token := &guard.Token{Issuer: "https://h.example", Subject: "u1", ClientID: "c1", Scope: "openid user/*.rs", FHIRUser: "Practitioner/1"}
	token.IDP, token.Groups, token.Claims = "h", []string{"doctors"}, map[string][]string{"ward": {"7"}, "other": {"x"}}
	i, err := interaction.Parse("GET", "Patient/1/Observation", "code=a&code=b", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.1.2.3:4"
	in := newInput(rule.Request{Client: r, Token: token, Method: "GET", Interaction: i}, []string{"ward", "unit"})
	for expression, want := range map[string]bool{
		"token.issuer == 'https://h.example' && token.subject == 'u1' && token.client_id == 'c1' && token.fhir_user == 'Practitioner/1'": true,
		"token.scopes == ['openid', 'user/*.rs'] && token.idp == 'h' && 'doctors' in token.groups":                                       true,
		"token.claims['ward'] == ['7'] && token.claims['unit'] == []":                                                                    true,
		"'other' in token.claims": false,
		"request.interaction == 'search-compartment' && request.compartment == 'Patient/1' && request.type == 'Observation'": true,
		"request.parameters['code'] == ['a', 'b'] && request.method == 'GET' && request.client_ip == '10.1.2.3'":             true,
		"now > timestamp('2026-01-01T00:00:00Z')": true,
	} {
		d := compiled(t, "allow "+expression).Request(t.Context(), in).Decision
		if d.Err != nil || (d.Effect == rule.Allow) != want {
			t.Errorf("%s: %+v", expression, d)
		}
	}
	if none := newInput(rule.Request{Client: r, Interaction: i}, []string{"ward"}); none.Token.Subject != "" || !slices.Equal(none.Request.Parameters["code"], []string{"a", "b"}) {
		t.Errorf("without a token: %+v", none)
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
	failed := (&Policy{logger: slog.New(slog.NewTextHandler(&log, nil))}).Failed
	failed(r, fmt.Errorf("rule vip: %w: ward", tokenclaim.ErrUnread))
	if text := log.String(); !strings.Contains(text, "user=alice") || !strings.Contains(text, "rule vip: ") || !strings.Contains(text, "ward") {
		t.Errorf("%q", text)
	}
	log.Reset()
	if failed(r, errors.New("rule vip: secret")); strings.Contains(log.String(), "secret") {
		t.Errorf("%q", log.String())
	}
}
