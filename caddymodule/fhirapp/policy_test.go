package fhirapp

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
)

// withBearerOption returns replacements that add an option to fhir_bearer in the example.
func withBearerOption(option string) []string {
	if option == "" {
		return nil
	}
	return []string{"fhir_bearer\n", "fhir_bearer {\n\t\t\t" + option + "\n\t\t}\n"}
}

// Scopes limit which requests a token permits, unless the FHIR server enforces scopes.
func TestScopesAreEnforced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, options, method, path string
		status                      int
	}{
		{"allowed by the scope", "", http.MethodGet, "Patient/1", http.StatusOK},
		{"what it does not allow", "", http.MethodDelete, "Patient/1", http.StatusForbidden},
		{"an operation that is not listed", "", http.MethodGet, "Patient/1/$secrets", http.StatusForbidden},
		{"one that is", "operation $secrets whole rs", http.MethodGet, "Patient/1/$secrets", http.StatusOK},
		{"what a policy denies", "test_deny type Patient", http.MethodGet, "Patient/1", http.StatusForbidden},
		{"no scopes", "scopes off", http.MethodDelete, "Patient/1", http.StatusOK},
		{"definitions", "", http.MethodGet, "ValueSet/1", http.StatusOK},
		{"terminology", "", http.MethodGet, "ConceptMap/$translate?url=http://x.example", http.StatusOK},
		{"terminology by a scope", "expand_scope demo.read", http.MethodGet, "ConceptMap/$translate?url=http://x.example", http.StatusForbidden},
		{"path that is not FHIR", "", http.MethodGet, "admin", http.StatusNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := exampleGateway(t, echo, withBearerOption(tt.options)...)
			if response := g.Do(tt.method, "/fhir/R4/"+tt.path, "", "Authorization", "Bearer "+g.Token()); response.StatusCode != tt.status {
				t.Errorf("status %d, want %d: %.300s", response.StatusCode, tt.status, gatewaytest.ReadBody(t, response))
			}
		})
	}
}

// The audit log contains the request, the person, and the rule that permitted or denied the request.
func TestAccessIsAudited(t *testing.T) {
	t.Parallel()
	g, _, trail := loggingGateway(t)
	token := g.Token()
	for _, path := range []string{"Patient/1", "Patient/1/$secrets"} {
		g.Get("/fhir/R4/"+path, token)
	}
	var accesses []map[string]any
	for _, line := range logLines(t, trail) {
		if line["kind"] == "access" {
			delete(line, "ts")
			accesses = append(accesses, line)
		}
	}
	if len(accesses) != 1 {
		t.Fatalf("reads are on the trail too, or refusals are not: %v", accesses)
	}
	for field, want := range map[string]string{
		"level": "warn", "outcome": "insufficient_scope", "user": "alice", "client_id": "demo-app", "interaction": "operation Patient/1 $secrets",
	} {
		if accesses[0][field] != want {
			t.Errorf("%s: %v, want %s", field, accesses[0][field], want)
		}
	}
}

func TestBearerOptionErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ option, want string }{
		"no type":                {"shared Gadget everyone", `"Gadget" is not a resource type of FHIR R4`},
		"no rule":                {"shared Device sometimes", `unknown rule "sometimes"`},
		"a type without patient": {"shared Location patient", "Location cannot have the rule patient"},
		"a rule twice":           {"shared Device everyone\nshared Device closed", "duplicate rule for Device"},
		"no rule at all":         {"shared Device", "wrong argument count"},
		"no operation":           {"operation everything whole r", "operation: "},
		"no reach":               {"operation $everything sometimes r", "operation: "},
		"two classes in one":     {`acr "a b"`, "characters that are not allowed in a WWW-Authenticate challenge"},
		"no age":                 {"max_age never", "invalid duration"},
		"scopes on":              {"scopes on", "the only valid value is off"},
	} {
		err := new(bearer.Bearer).UnmarshalCaddyfile(caddyfile.NewTestDispenser("fhir_bearer {\n" + tt.option + "\n}"))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "Testfile:") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A rule that cannot have an effect is an error, because operators might rely on it.
func TestScopesOffWithRules(t *testing.T) {
	t.Parallel()
	config := gatewaytest.Adapt(t, gatewaytest.ExampleText(t, withBearerOption("scopes off\n\t\t\ttest_deny type Patient")...))
	if _, err := gatewaytest.Provision(t, config); err == nil || !strings.Contains(err.Error(), "scopes off cannot be combined with allow, deny, operation, shared, search_parameters or expand_scope") {
		t.Errorf("got %v", err)
	}
}

// A memory limit that is smaller than one response is an error, because every response of that size would be rejected.
func TestMemoryOptions(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		"max_memory 64MiB": "",
		"max_memory 63MiB": "it must be at least 67108864 bytes",
		"max_memory 1GiB":  "",
	} {
		_, err := gatewaytest.Provision(t, gatewaytest.Adapt(t, gatewaytest.ExampleText(t, withBearerOption(options)...)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", options, err, want)
		}
	}
}

// testPolicy is a feature of fhir_bearer for tests that need a policy. Its subdirectives test_deny and test_require each have
// two arguments: a property of the request (type, client_ip, idp, groups or the name of a claim) and a value.
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

func (*testPolicy) ReportFailure(*http.Request, error) {}

func (p *testPolicy) Evaluate(_ context.Context, r rule.Request) (j rule.Evaluation) {
	for _, row := range p.Rows {
		var values []string
		switch row[1] {
		case "type":
			values = []string{r.Interaction.Type}
		case "client_ip":
			values = []string{requester.Address(r.ClientRequest)}
		case "idp":
			values = []string{r.Token.IDP}
		case "groups":
			values = r.Token.Groups
		default:
			values = r.Token.Claims[row[1]]
		}
		unread := r.Token != nil && slices.Contains(r.Token.UnreadClaims, row[1])
		if unread || slices.Contains(values, row[2]) == (row[0] == "test_deny") {
			j.Decision = rule.Decision{Effect: rule.Deny, Rule: row[1]}
		}
	}
	return j
}

// wardPolicies permit access only to doctors of ward 7.
const wardPolicies = `
			test_require idp ""
			test_require groups doctors
			test_require ward 7
			test_deny none x`

// TestPoliciesOfOtherIssuers checks that policies use a token's groups and claims, even nested ones. Missing claims are empty.
func TestPoliciesOfOtherIssuers(t *testing.T) {
	t.Parallel()
	k := gatewaytest.NewIssuer(t)
	names := "\n\t\t\ttoken_claim groups realm_access.roles\n\t\t\ttoken_claim ward hospital.ward\n\t\t\ttoken_claim none"
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_bearer\n", "fhir_bearer {\n\t\t\ttrust "+k.URL+names+wardPolicies+"\n\t\t}\n"))
	for _, tt := range []struct {
		name   string
		claims map[string]any
		status int
	}{
		{"both", map[string]any{"realm_access": map[string]any{"roles": []string{"x", "doctors"}}, "hospital": map[string]any{"ward": 7}}, http.StatusBadGateway},
		{"no ward", map[string]any{"realm_access": map[string]any{"roles": []string{"doctors"}}}, http.StatusForbidden},
		{"another ward", map[string]any{"realm_access": map[string]any{"roles": []string{"doctors"}}, "hospital": map[string]any{"ward": "8"}}, http.StatusForbidden},
		{"another claim of groups", map[string]any{"groups": []string{"doctors"}, "hospital": map[string]any{"ward": "7"}}, http.StatusForbidden},
		{"none", nil, http.StatusForbidden},
		{"a claim of another form", map[string]any{"realm_access": map[string]any{"roles": []string{"doctors"}}, "hospital": map[string]any{"ward": "7"}, "none": map[string]any{}}, http.StatusForbidden},
	} {
		claims := map[string]any{
			"iss": k.URL, "sub": "u1", "aud": "https://localhost:8443/fhir/R4", "azp": "c1", "scope": "user/*.rs", "fhirUser": "Practitioner/1",
			"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "typ": "Bearer",
		}
		maps.Copy(claims, tt.claims)
		token := k.Sign(t, claims)
		for range 2 { // first verified, then from the token cache
			if r := g.Get("/fhir/R4/Patient", token); r.StatusCode != tt.status {
				t.Errorf("%s: status %d, want %d", tt.name, r.StatusCode, tt.status)
			}
		}
	}
}

// TestPoliciesOfLocalPeople checks that policies use a person's current groups and claims, not those when the token was issued.
func TestPoliciesOfLocalPeople(t *testing.T) {
	t.Parallel()
	keys := gatewaytest.StorageFolder(t)
	guarded := func(user, policy string) *gateway {
		return newGatewayAt(t, gatewaytest.ExampleText(t, "fhir_bearer\n", "fhir_bearer {"+policy+"\n\t\t}\n", "phone +15550100\n", "phone +15550100\n"+user), keys)
	}
	const doctors, lacksWard = "\n\t\t\ttest_require idp local\n\t\t\ttest_require groups doctors", "\n\t\t\ttoken_claim ward\n\t\t\ttest_require ward 7"
	token := guarded("", doctors).Token()
	for _, tt := range []struct {
		name, user, policy string
		status             int
	}{
		{"a member", "\t\t\tgroup nurses doctors\n", doctors, http.StatusBadGateway},
		{"a member no longer", "\t\t\tgroup nurses\n", doctors, http.StatusForbidden},
		{"without a claim", "", lacksWard, http.StatusForbidden},
	} {
		if r := guarded(tt.user, tt.policy).Get("/fhir/R4/Patient", token); r.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d", tt.name, r.StatusCode, tt.status)
		}
	}
}

// TestSignInPolicy checks that a site can require an authentication context class. Alice has signed in only with a password.
func TestSignInPolicy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, option, challenge string }{
		{"nothing", "", ""},
		{"a second factor", "acr mfa", `acr_values="mfa"`},
		{"a second factor, without scopes", "acr mfa\n\t\t\tscopes off", `acr_values="mfa"`},
		{"a class of another issuer", "acr gold\n\t\t\ttrust https://as.example https://localhost:8443/fhir/R4", `acr_values="gold"`},
		{"a password", "acr sfa", ""},
		{"a recent one", "max_age 1h", ""},
		{"both", "acr phr\n\t\t\tmax_age 1h", `acr_values="phr", max_age="3600"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := exampleGateway(t, echo, withBearerOption(tt.option)...)
			r := g.Get("/fhir/R4/Patient/1", g.Token())
			challenge := r.Header.Get("WWW-Authenticate")
			if tt.challenge == "" {
				if r.StatusCode != http.StatusOK {
					t.Errorf("status %d, %s", r.StatusCode, challenge)
				}
				return
			}
			if r.StatusCode != http.StatusUnauthorized || !strings.Contains(challenge, `error="insufficient_user_authentication"`) ||
				!strings.Contains(challenge, tt.challenge) || !strings.Contains(challenge, "resource_metadata=") {
				t.Errorf("status %d, %s", r.StatusCode, challenge)
			}
			if r := g.Get("/fhir/R4/metadata", ""); r.StatusCode == http.StatusUnauthorized {
				t.Error("metadata needs a sign-in")
			}
		})
	}
}

// TestAccessTokenOfClassThatClientRequires checks that the guard forwards the sign-in's acr to the FHIR server.
func TestAccessTokenOfClassThatClientRequires(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo, "client demo-app {\n", "client demo-app {\n\t\t\tacr sfa\n")
	if r := g.Get("/fhir/R4/Patient/1", g.Token()); r.StatusCode != http.StatusOK {
		t.Errorf("status %d, %s", r.StatusCode, r.Header.Get("WWW-Authenticate"))
	}
}

// TestSignInPolicyOfUnknownClass checks that an unknown class is an error, because it would deny every request.
func TestSignInPolicyOfUnknownClass(t *testing.T) {
	t.Parallel()
	_, err := gatewaytest.Provision(t, gatewaytest.Adapt(t, gatewaytest.ExampleText(t, withBearerOption("acr gold")...)))
	if err == nil || !strings.Contains(err.Error(), "would reject every token") {
		t.Errorf("got %v", err)
	}
}
