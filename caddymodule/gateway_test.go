package caddymodule

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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// gateway is a Gateway with what only this package's tests need of it.
type gateway struct {
	*gatewaytest.Gateway
	t testing.TB
}

// exampleGateway is Caddyfile.example, with pieces of its text replaced, in front of a
// backend, which may be nil.
func exampleGateway(t testing.TB, backend http.Handler, oldnew ...string) *gateway {
	t.Helper()
	address := gatewaytest.NoBackend
	if backend != nil {
		address = gatewaytest.Backend(t, backend)
	}
	return newGateway(t, exampleWith(t, append(oldnew, "@backend {env.FHIR_BACKEND}", "@backend "+address)...))
}

// serversBlock begins the server options of Caddyfile.example.
const serversBlock = "\tservers {\n"

// exampleLog is the first log of Caddyfile.example.
const exampleLog = "\tlog {\n\t\tformat fhir\n\t\texclude admin http.auto_https pki tls\n\t}\n"

// exampleWith is Caddyfile.example with pieces of its text replaced, each once, and with hashes that take no time.
func exampleWith(t testing.TB, oldnew ...string) string {
	t.Helper()
	return cheapHashes().Replace(exampleAsIs(t, oldnew...))
}

// exampleAsIs is Caddyfile.example with pieces of its text replaced, each once.
func exampleAsIs(t testing.TB, oldnew ...string) string {
	t.Helper()
	file := gatewaytest.ReadFile(t, "../Caddyfile.example")
	text := file
	for pair := range slices.Chunk(oldnew, 2) {
		if !strings.Contains(text, pair[0]) {
			t.Fatalf("Caddyfile.example has no %q", pair[0])
		}
		text = strings.Replace(text, pair[0], pair[1], 1)
	}
	return text
}

// userInExample finds the users of Caddyfile.example.
var userInExample = regexp.MustCompile(`user (\w+) \{\n\s*password_hash (\S+)`)

// cheapHashes replaces the example's hashes, which take long to compare, by others of the same passwords.
var cheapHashes = sync.OnceValue(func() *strings.Replacer {
	file, err := os.ReadFile("../Caddyfile.example")
	if err != nil {
		panic(err)
	}
	var oldnew []string
	for _, user := range userInExample.FindAllStringSubmatch(string(file), -1) {
		hash, err := bcrypt.GenerateFromPassword([]byte(user[1]+"-demo-password"), bcrypt.MinCost)
		if err != nil {
			panic(err)
		}
		oldnew = append(oldnew, user[2], string(hash))
	}
	return strings.NewReplacer(oldnew...)
})

// The example's people have the passwords that documents tell.
func TestPasswordsOfExample(t *testing.T) {
	t.Parallel()
	file := gatewaytest.ReadFile(t, "../Caddyfile.example")
	users := userInExample.FindAllStringSubmatch(file, -1)
	if len(users) < 3 {
		t.Errorf("%d users", len(users))
	}
	for _, user := range users {
		if ok, err := (passwords{}).Compare([]byte(user[2]), []byte(user[1]+"-demo-password")); !ok || err != nil {
			t.Errorf("%s: %v", user[1], err)
		}
	}
}

func newGateway(t testing.TB, caddyfile string) *gateway {
	t.Helper()
	return newGatewayAt(t, caddyfile, gatewaytest.Folder(t))
}

// newGatewayAt keeps its keys and certificates in a folder.
func newGatewayAt(t testing.TB, caddyfile, folder string) *gateway {
	t.Helper()
	return &gateway{Gateway: gatewaytest.NewAt(t, caddyfile, folder), t: t}
}

// demoCallback is the redirect URI that needs no click once alice is signed in.
const demoCallback = "https://app.example.org/callback"

// code signs alice in, and returns the authorization code.
func (g *gateway) code() string {
	g.t.Helper()
	return g.codeOf(demoRequest())
}

// codeOf is code for another request.
func (g *gateway) codeOf(request url.Values) string {
	g.t.Helper()
	return g.codeOfUser("alice", request)
}

// codeOfUser is codeOf for another person.
func (g *gateway) codeOfUser(user string, request url.Values) string {
	g.t.Helper()
	page := gatewaytest.Read(g.t, g.Get(g.Get("/oauth2/authorize?"+request.Encode(), "").Header.Get("Location"), ""))
	form := servertest.ReadForm(page)
	if form.Action == "" {
		g.t.Fatalf("no sign-in form: %s", page)
	}
	form.Fields.Set("username", user)
	form.Fields.Set("password", user+"-demo-password")
	answer, err := g.Post(form.Action, form.Fields).Location()
	if err != nil {
		g.t.Fatal(err)
	}
	return answer.Query().Get("code")
}

// demoRequest is an authorization request of demo-app.
func demoRequest() url.Values {
	return url.Values{"response_type": {"code"}, "client_id": {"demo-app"}, "redirect_uri": {demoCallback}, "scope": {"openid user/*.rs"}}
}

func codeForm(code string) url.Values {
	return url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "client_id": {"demo-app"}, "redirect_uri": {demoCallback},
	}
}

// token signs alice in, and returns an access token.
func (g *gateway) token() string {
	g.t.Helper()
	return g.tokenOf(demoRequest())
}

// tokenOf is token for another request.
func (g *gateway) tokenOf(request url.Values) string {
	g.t.Helper()
	return g.tokenOfUser("alice", request)
}

// tokenOfUser is tokenOf for another person.
func (g *gateway) tokenOfUser(user string, request url.Values) string {
	g.t.Helper()
	return g.accessToken(codeForm(g.codeOfUser(user, request)))
}

// accessToken is the one that the token endpoint gives.
func (g *gateway) accessToken(form url.Values) string {
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

// issue is one of an OperationOutcome.
type issue struct{ Severity, Code, Diagnostics string }

// outcome reads an answer that must be an OperationOutcome with one issue.
func (g *gateway) outcome(r *http.Response) issue {
	g.t.Helper()
	var o struct {
		ResourceType string
		Issue        []issue
	}
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.ResourceType != "OperationOutcome" || len(o.Issue) != 1 {
		g.t.Fatalf("status %d: no OperationOutcome: %+v, %v", r.StatusCode, o, err)
	}
	if got := r.Header.Get("Content-Type"); got != "application/fhir+json" {
		g.t.Errorf("Content-Type %q", got)
	}
	return o.Issue[0]
}

// headerList are the members of a header that is a list (RFC 9110 §5.6.1).
func headerList(h http.Header, name string) (members []string) {
	for _, line := range h[http.CanonicalHeaderKey(name)] {
		for member := range strings.SplitSeq(line, ",") {
			members = append(members, strings.TrimSpace(member))
		}
	}
	return members
}

// formatted formats a Caddyfile as caddy fmt does.
func formatted(caddyfileText string) string { return string(caddyfile.Format([]byte(caddyfileText))) }

// handlerOf is the one handler of a type in a configuration.
func handlerOf[H any](t testing.TB, ctx caddy.Context) H {
	t.Helper()
	app, err := ctx.App("http")
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range app.(*caddyhttp.App).Servers {
		if h, ok := handlerAmong[H](server.Routes); ok {
			return h
		}
	}
	t.Fatal("no such handler")
	return *new(H)
}

func handlerAmong[H any](routes caddyhttp.RouteList) (none H, ok bool) {
	for _, route := range routes {
		for _, handler := range route.Handlers {
			if h, ok := handler.(H); ok {
				return h, true
			}
			if nested, ok := handler.(*caddyhttp.Subroute); ok {
				if h, ok := handlerAmong[H](nested.Routes); ok {
					return h, true
				}
			}
		}
	}
	return none, false
}
