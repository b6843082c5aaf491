package fhirapp

import (
	"context"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
)

// testPolicy is a feature of fhir_bearer for tests that need a policy. Its subdirectives test_deny and test_require have a
// property of the request and a value: type, client_ip, idp, groups or the name of a claim.
type testPolicy struct {
	Rows [][]string `json:"rows,omitempty"`
}

func init() { caddy.RegisterModule(new(testPolicy)) }

func (*testPolicy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.bearer.test_policy", New: func() caddy.Module { return new(testPolicy) }}
}

func (p *testPolicy) Subdirectives() (option.Block, []string) {
	add := func(d *caddyfile.Dispenser) error {
		p.Rows = append(p.Rows, append([]string{d.Val()}, d.RemainingArgs()...))
		return nil
	}
	return option.Block{"test_deny": add, "test_require": add}, []string{"test_deny", "test_require"}
}

func (p *testPolicy) Policy(bearer.Site) (rule.Policy, error) { return p, nil }

func (*testPolicy) Failed(*http.Request, error) {}

func (p *testPolicy) Judge(_ context.Context, r rule.Request) (j rule.Judgement) {
	for _, row := range p.Rows {
		var values []string
		switch row[1] {
		case "type":
			values = []string{r.Interaction.Type}
		case "client_ip":
			values = []string{requester.Address(r.Client)}
		case "idp":
			values = []string{r.Token.IDP}
		case "groups":
			values = r.Token.Groups
		default:
			values = r.Token.Claims[row[1]]
		}
		unread := r.Token != nil && slices.Contains(r.Token.Unread, row[1])
		if unread || slices.Contains(values, row[2]) == (row[0] == "test_deny") {
			j.Decision = rule.Decision{Effect: rule.Deny, Rule: row[1]}
		}
	}
	return j
}
