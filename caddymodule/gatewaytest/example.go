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

// Example starts Caddyfile.example, with parts of its text replaced, in front of a backend, which may be nil.
func Example(t testing.TB, backend http.Handler, replacements ...string) *Gateway {
	t.Helper()
	address := UnreachableBackend
	if backend != nil {
		address = Backend(t, backend)
	}
	return New(t, ExampleText(t, append(replacements, "@backend {env.FHIR_BACKEND}", "@backend "+address)...))
}

// ServersBlock is the first line of the server options in Caddyfile.example.
const ServersBlock = "\tservers {\n"

// ExampleLog is the first log of Caddyfile.example.
const ExampleLog = "\tlog {\n\t\tformat fhir\n\t\texclude admin http.auto_https pki tls\n\t}\n"

// ExampleText returns Caddyfile.example with parts of its text replaced, each once, and with cheap password hashes.
func ExampleText(t testing.TB, replacements ...string) string {
	t.Helper()
	return CheapHashes().Replace(UnmodifiedExampleText(t, replacements...))
}

// UnmodifiedExampleText returns Caddyfile.example with parts of its text replaced, each once.
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
			text = strings.Replace(text, line, "", 1) // this feature is not linked into the test binary
		}
	}
	return text
}

// userInExample matches the users of Caddyfile.example.
var userInExample = regexp.MustCompile(`user (\w+) \{\n\s*password_hash (\S+)`)

// CheapHashes replaces the example's password hashes, which are slow to compare, with cheap hashes of the same passwords.
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

// DemoCallback is the redirect URI of demo-app, which needs no click once alice is signed in.
const DemoCallback = "https://app.example.org/callback"

// Code signs alice in and returns the authorization code.
func (g *Gateway) Code() string {
	g.t.Helper()
	return g.CodeFor(DemoRequest())
}

// CodeFor is like [Gateway.Code], but for another request.
func (g *Gateway) CodeFor(request url.Values) string {
	g.t.Helper()
	return g.CodeForUser("alice", request)
}

// CodeForUser is like [Gateway.CodeFor], but for another user.
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

// CodeForm returns a token request for demo-app for an authorization code.
func CodeForm(code string) url.Values {
	return url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "client_id": {"demo-app"}, "redirect_uri": {DemoCallback},
	}
}

// Token signs alice in and returns an access token.
func (g *Gateway) Token() string {
	g.t.Helper()
	return g.TokenFor(DemoRequest())
}

// TokenFor is like [Gateway.Token], but for another request.
func (g *Gateway) TokenFor(request url.Values) string {
	g.t.Helper()
	return g.TokenForUser("alice", request)
}

// TokenForUser is like [Gateway.TokenFor], but for another user.
func (g *Gateway) TokenForUser(user string, request url.Values) string {
	g.t.Helper()
	return g.RequestToken(CodeForm(g.CodeForUser(user, request)))
}

// RequestToken returns the access token for a token request.
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

// Issue is an issue of an OperationOutcome.
type Issue struct {
	Severity, Code, Diagnostics string // members of OperationOutcome.issue
}

// DecodeOutcome decodes a response that must be an OperationOutcome with one issue.
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

// HeaderList returns the members of a header that is a list (RFC 9110 §5.6.1).
func HeaderList(h http.Header, name string) (members []string) {
	for _, line := range h[http.CanonicalHeaderKey(name)] {
		for member := range strings.SplitSeq(line, ",") {
			members = append(members, strings.TrimSpace(member))
		}
	}
	return members
}

// FormatCaddyfile returns a Caddyfile in the format of caddy fmt.
func FormatCaddyfile(caddyfileText string) string {
	return string(caddyfile.Format([]byte(caddyfileText)))
}

// FindHandler returns the only handler of a type in a configuration.
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
