package gatewaytest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/crypto/bcrypt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
)

// Example starts Caddyfile.example, with the given replacements, in front of a backend, which may be nil.
func Example(t testing.TB, backend http.Handler, replacements ...string) *Gateway {
	t.Helper()
	address := UnreachableBackend
	if backend != nil {
		address = Backend(t, backend)
	}
	return New(t, ExampleText(t, append(replacements, "@backend {env.FHIR_BACKEND}", "@backend "+address)...))
}

// ServersBlock is the first line of the global servers option in Caddyfile.example.
const ServersBlock = "\tservers {\n"

// ExampleLog is the first log option in Caddyfile.example.
const ExampleLog = "\tlog {\n\t\tformat fhir\n\t\texclude admin http.auto_https pki tls\n\t}\n"

// ExampleText returns Caddyfile.example with fast password hashes and the given replacements, which must match once each.
func ExampleText(t testing.TB, replacements ...string) string {
	t.Helper()
	return CheapHashes().Replace(UnmodifiedExampleText(t, replacements...))
}

// UnmodifiedExampleText returns Caddyfile.example with only the given replacements, each of which must match once.
func UnmodifiedExampleText(t testing.TB, replacements ...string) string {
	t.Helper()
	file := ReadFile(t, Root("Caddyfile.example"))
	text := file
	for pair := range slices.Chunk(replacements, 2) {
		if !strings.Contains(text, pair[0]) {
			t.Fatalf("Caddyfile.example has no %q", pair[0])
		}
		text = strings.Replace(text, pair[0], pair[1], 1)
	}
	for module, line := range map[string]string{"http.handlers.fhir_sample": "\t\tfhir_sample\n", "fhir.features.launch_page": "\t\tlaunch_page\n"} {
		if _, err := caddy.GetModule(module); err != nil {
			text = strings.Replace(text, line, "", 1) // the test binary does not contain this feature
		}
	}
	return text
}

// userInExample matches the definition of a user in Caddyfile.example.
var userInExample = regexp.MustCompile(`user (\w+) \{\n\s*password_hash (\S+)`)

// CheapHashes replaces the example's password hashes with hashes of the same passwords that are faster to compare.
var CheapHashes = sync.OnceValue(func() *strings.Replacer {
	file, err := os.ReadFile(Root("Caddyfile.example"))
	if err != nil {
		panic(err)
	}
	var replacements []string
	for _, user := range userInExample.FindAllStringSubmatch(string(file), -1) {
		hash, err := bcrypt.GenerateFromPassword([]byte(user[1]+"-demo-password"), bcrypt.MinCost)
		if err != nil {
			panic(err)
		}
		replacements = append(replacements, user[2], string(hash))
	}
	return strings.NewReplacer(replacements...)
})

// DemoCallback is the redirect URI of demo-app, which requires no consent once alice is signed in.
const DemoCallback = "https://app.example.org/callback"

// Code signs in alice and returns an authorization code.
func (g *Gateway) Code() string {
	g.t.Helper()
	return g.CodeFor(DemoRequest())
}

// CodeFor is like [Gateway.Code] but uses the given authorization request.
func (g *Gateway) CodeFor(request url.Values) string {
	g.t.Helper()
	return g.CodeForUser("alice", request)
}

// CodeForUser is like [Gateway.CodeFor] but signs in the given user.
func (g *Gateway) CodeForUser(user string, request url.Values) string {
	g.t.Helper()
	page := ReadBody(g.t, g.Get(g.Get("/oauth2/authorize?"+request.Encode(), "").Header.Get("Location"), ""))
	form := authorizetest.ReadForm(page)
	if form.Action == "" {
		g.t.Fatalf("no sign-in form: %s", page)
	}
	form.Fields.Set("username", user)
	form.Fields.Set("password", user+"-demo-password")
	callback, err := g.Post(form.Action, form.Fields).Location()
	if err != nil {
		g.t.Fatal(err)
	}
	return callback.Query().Get("code")
}

// DemoRequest returns an authorization request for demo-app.
func DemoRequest() url.Values {
	return url.Values{"response_type": {"code"}, "client_id": {"demo-app"}, "redirect_uri": {DemoCallback}, "scope": {"openid user/*.rs"}}
}

// CodeForm returns demo-app's token request for an authorization code.
func CodeForm(code string) url.Values {
	return url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "client_id": {"demo-app"}, "redirect_uri": {DemoCallback},
	}
}

// Token signs in alice and returns an access token.
func (g *Gateway) Token() string {
	g.t.Helper()
	return g.TokenFor(DemoRequest())
}

// TokenFor is like [Gateway.Token] but uses the given authorization request.
func (g *Gateway) TokenFor(request url.Values) string {
	g.t.Helper()
	return g.TokenForUser("alice", request)
}

// TokenForUser is like [Gateway.TokenFor] but signs in the given user.
func (g *Gateway) TokenForUser(user string, request url.Values) string {
	g.t.Helper()
	return g.RequestToken(CodeForm(g.CodeForUser(user, request)))
}

// RequestToken sends a token request and returns the access token.
func (g *Gateway) RequestToken(form url.Values) string {
	g.t.Helper()
	var token struct {
		AccessToken string `json:"access_token"`
	}
	response := g.Post("/oauth2/token", form)
	if err := json.NewDecoder(response.Body).Decode(&token); err != nil || token.AccessToken == "" {
		g.t.Fatalf("token endpoint: %d %v", response.StatusCode, err)
	}
	return token.AccessToken
}

// Issue is OperationOutcome.issue.
type Issue struct {
	Severity, Code, Diagnostics string // members of OperationOutcome.issue
}

// DecodeOutcome decodes a response, which must be an OperationOutcome with exactly one issue.
func (g *Gateway) DecodeOutcome(r *http.Response) Issue {
	g.t.Helper()
	var o struct {
		ResourceType string
		Issue        []Issue
	}
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.ResourceType != "OperationOutcome" || len(o.Issue) != 1 {
		g.t.Fatalf("status %d: no OperationOutcome: %+v, %v", r.StatusCode, o, err)
	}
	if got := r.Header.Get("Content-Type"); got != "application/fhir+json" {
		g.t.Errorf("Content-Type %q", got)
	}
	return o.Issue[0]
}

// HeaderList returns the members of a list-valued header (RFC 9110 §5.6.1).
func HeaderList(h http.Header, name string) (members []string) {
	for _, line := range h[http.CanonicalHeaderKey(name)] {
		for member := range strings.SplitSeq(line, ",") {
			members = append(members, strings.TrimSpace(member))
		}
	}
	return members
}

// FormatCaddyfile formats a Caddyfile like caddy fmt.
func FormatCaddyfile(caddyfileText string) string {
	return string(caddyfile.Format([]byte(caddyfileText)))
}

// FindHandler returns the only handler of type H in a configuration.
func FindHandler[H any](t testing.TB, ctx caddy.Context) H {
	t.Helper()
	app, err := ctx.App("http")
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range app.(*caddyhttp.App).Servers {
		if h, ok := findHandlerIn[H](server.Routes); ok {
			return h
		}
	}
	t.Fatal("no such handler")
	return *new(H)
}

func findHandlerIn[H any](routes caddyhttp.RouteList) (zero H, ok bool) {
	for _, route := range routes {
		for _, handler := range route.Handlers {
			if h, ok := handler.(H); ok {
				return h, true
			}
			if nested, ok := handler.(*caddyhttp.Subroute); ok {
				if h, ok := findHandlerIn[H](nested.Routes); ok {
					return h, true
				}
			}
		}
	}
	return zero, false
}
