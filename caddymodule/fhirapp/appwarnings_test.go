package fhirapp

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
)

// Settings that are allowed but not recommended are logged once each. A loopback issuer (for evaluation) causes fewer warnings.
func TestWarnings(t *testing.T) {
	t.Parallel()
	idp := func(p IdentityProvider) App {
		p.Key = "hospital"
		return App{Issuer: "https://fhir.example", IdentityProviders: []IdentityProvider{p}, Clients: []Client{{Settings: client.Settings{ID: "c", Scopes: []string{"user/*.rs"}}}}}
	}
	ward := map[string]string{"c": "c"}
	limited := func(l scopelimit.Row, idps ...map[string]string) (a App) {
		a.ScopeLimits = []scopelimit.Row{l}
		for _, claims := range idps {
			a.IdentityProviders = append(a.IdentityProviders, IdentityProvider{IdentityProvider: people.IdentityProvider{TokenClaims: claims}})
		}
		return a
	}
	weak := []client.Client{{ID: "c", Secret: "s3cret"}}
	open := []client.Client{{ID: "c", RedirectURIs: []string{"https://c.example/cb"}, PKCE: client.PKCEOptional}}
	for _, tt := range []struct {
		name    string
		app     App
		clients []client.Client
		want    string
	}{
		{"misspelt scope", App{}, []client.Client{{ID: "c", Scopes: []string{"openid", "ofline_access", "demo.read"}}}, "client_id=c scope=ofline_access did_you_mean=offline_access"},
		{"guessable secret", App{Issuer: "https://fhir.example"}, weak, "128 bits"},
		{"guessable secret on loopback", App{Issuer: "https://localhost:8443"}, weak, ""},
		{"no PKCE", App{Issuer: "https://fhir.example"}, open, "PKCE"},
		{"no PKCE on loopback", App{Issuer: "https://127.0.0.1:8443"}, open, ""},
		{"idp without fhirUser", idp(IdentityProvider{}), nil, "idp=hospital"},
		{"idp with a claim of another name", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{Claims: map[string]string{"name": "n"}}}), nil, "idp=hospital"},
		{"idp with the claim", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{Claims: map[string]string{"fhirUser": "f"}}}), nil, ""},
		{"idp with a list", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{FHIRUsers: map[string]string{"s": "Practitioner/1"}}}), nil, ""},
		{"idp with a search", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{FHIRUserSearch: []launch.PersonSearch{{Type: "Practitioner"}}}}), nil, ""},
		{"idp, fhirUser alone", App{IdentityProviders: []IdentityProvider{{IdentityProvider: people.IdentityProvider{Key: "hospital"}}}, Clients: []Client{{Settings: client.Settings{Scopes: []string{"fhirUser"}}}}}, nil, "fhir_user_search"},
		{"idp that is linked", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{LinkEmail: true}}), nil, ""},
		{"idp, patients alone", App{IdentityProviders: []IdentityProvider{{}}, Clients: []Client{{Settings: client.Settings{Scopes: []string{"patient/*.rs"}}}}}, nil, ""},
		{"idp, registered clients", App{IdentityProviders: []IdentityProvider{{IdentityProvider: people.IdentityProvider{Key: "hospital"}}}}, []client.Client{authorizetest.SelfRegisteredClient(nil)}, "idp=hospital"},
		{"users without fhir_user", App{Users: []User{{}}, Clients: []Client{{Settings: client.Settings{Scopes: []string{"user/*.rs"}}}}}, nil, "no user has a fhir_user"},
		{"users, client of a feature", App{Users: []User{{}}}, []client.Client{{ID: "sandbox-app", Scopes: []string{"fhirUser"}}}, ""},
		{"users with it", App{Users: []User{{FHIRUser: "Practitioner/1"}}, Clients: []Client{{Settings: client.Settings{Scopes: []string{"user/*.rs"}}}}}, nil, ""},
		{"children's records by address", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{FHIRUserSearch: []launch.PersonSearch{{Type: "Patient"}}}}), nil, "idp=hospital type=Patient"},
		{"by identifier", idp(IdentityProvider{IdentityProvider: people.IdentityProvider{FHIRUserSearch: []launch.PersonSearch{{Type: "Patient", System: "s", Claim: "c"}}}}), nil, ""},
		{"a group of two providers", limited(scopelimit.Row{MatchBy: "group"}, nil, nil), nil, "scope_limit idp"},
		{"of one", limited(scopelimit.Row{MatchBy: "group"}, nil), nil, ""},
		{"of one, and of users", App{ScopeLimits: []scopelimit.Row{{MatchBy: "group", Value: "g"}}, IdentityProviders: make([]IdentityProvider, 1), Users: []User{{Groups: []string{"g"}}}}, nil, "value=g"},
		{"users without a row", App{ScopeLimits: []scopelimit.Row{{MatchBy: "group", Value: "g"}}, Users: []User{{Name: "a", Groups: []string{"g"}}, {Name: "b"}, {Name: "c", Disabled: true}, {Name: "d"}}}, nil, "users=\"[b d]\" count=2"},
		{"users of another idp's row", App{ScopeLimits: []scopelimit.Row{{MatchBy: "any", IDP: "h"}}, Users: []User{{Name: "a"}}}, nil, "users=[a] count=1"},
		{"users with a row for all", App{ScopeLimits: []scopelimit.Row{{MatchBy: "group", Value: "g"}, {MatchBy: "any"}}, Users: []User{{Name: "a"}}}, nil, ""},
		{"of one that is named", limited(scopelimit.Row{MatchBy: "group", IDP: "h"}, nil, nil), nil, ""},
		{"a claim of two", limited(scopelimit.Row{MatchBy: "claim", Claim: "c"}, ward, ward), nil, "claim=c"},
		{"a claim of one of two", limited(scopelimit.Row{MatchBy: "claim", Claim: "c"}, ward, nil), nil, ""},
		{"all people", limited(scopelimit.Row{MatchBy: "any"}, nil, nil), nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&text, nil))
			var c authorize.Config
			for _, configured := range tt.app.Clients {
				core, err := configured.Literal()
				if err != nil {
					t.Fatal(err)
				}
				c.Clients = append(c.Clients, core)
			}
			if slices.ContainsFunc(tt.clients, func(c client.Client) bool { return c.SelfRegistered }) {
				c.Features = append(c.Features, authorizetest.SelfRegisteredClients(tt.clients))
			}
			warnAboutClients(logger, tt.app.Issuer, tt.clients)
			warnAboutPeople(logger, &tt.app, &c)
			logged := text.String()
			if tt.want == "" && logged != "" || tt.want != "" && (strings.Count(logged, "\n") != 1 || !strings.Contains(logged, tt.want)) || strings.Contains(logged, "s3cret") {
				t.Errorf("logged %q, want %q", logged, tt.want)
			}
		})
	}
}

// A configuration that cannot have clients causes a warning.
func TestWarningWithoutClients(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		from authorize.Config
		want bool
	}{
		{"none", authorize.Config{}, true},
		{"a client", authorize.Config{Clients: make([]client.Client, 1)}, false},
		{"clients register themselves", authorize.Config{Features: []authorize.Feature{authorizetest.SelfRegisteredClients{}}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			warnNoClients(slog.New(slog.NewTextHandler(&text, nil)), nil, &tt.from)
			if warned := strings.Contains(text.String(), "no client"); warned != tt.want {
				t.Errorf("logged %q", text.String())
			}
		})
	}
}

// siteWith returns a Caddyfile with one site and the global option fhir.
func siteWith(issuer, address, body string) string {
	return "{\n\tauto_https disable_redirects\n\tskip_install_trust\n\tfhir {\n\t\tissuer " + issuer + "\n\t}\n}\n\n" +
		address + " {\n\t" + strings.ReplaceAll(body, "\n", "\n\t") + "\n}\n"
}

// siteWarnings returns the warnings about the sites of a configuration.
func siteWarnings(t *testing.T, ctx caddy.Context) []string {
	t.Helper()
	sites, err := placement.LoadSites(ctx)
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := sites.Warnings()
	if err != nil {
		t.Fatal(err)
	}
	return warnings
}

const guardedAPI = "fhir_authorize\n@fhir path /fhir/R4 /fhir/R4/*\nhandle @fhir {\n\tfhir_bearer\n\tfhir_expand\n\treverse_proxy 127.0.0.1:1\n}"

// A handler that has no effect at its position causes a warning with a hint. The configuration still loads.
func TestCheckSites(t *testing.T) {
	t.Parallel()
	const here = "https://localhost:8443"
	tests := []struct {
		name, issuer, address, body string
		want                        []string
	}{
		{"as it should be", here, here, guardedAPI, nil},
		{"all in one block", here, here, "fhir_authorize\nfhir_bearer\nfhir_expand\nrespond 404", nil},
		{"shorthand matcher", here, here, "fhir_authorize\nfhir_bearer /fhir/R4*\nrespond 404", nil},
		{"site of many hosts", "https://a.example", "https://*.example", guardedAPI, nil},
		{"site of any host", "https://a.example", "https://", guardedAPI, nil},
		{"behind a proxy that is not trusted", "https://a.example", "http://a.example:8080", guardedAPI, []string{"Caddyfile:10 (a.example): nobody can sign in: the issuer is https://a.example, but this site serves plain HTTP and trusts no proxy"}},
		{"prefix that is stripped", here, here, "fhir_authorize\nhandle_path /hapi/* {\n\tfhir_bearer\n\trespond ok\n}", nil},
		{"whole site guarded, default elsewhere", here, here, guardedAPI + "\nhandle {\n\trespond 404\n}", nil},
		{"issuer without the port", "https://localhost", here, guardedAPI, []string{"issuer https://localhost is not the address"}},
		{"issuer of another host", "https://a.example", "https://b.example", guardedAPI, []string{"issuer https://a.example is not the address of a site with fhir_authorize (found at Caddyfile:10 (b.example)"}},
		{"no fhir_authorize", here, here, "fhir_bearer\nrespond 404", []string{"no site has fhir_authorize"}},
		{"matcher above the base", here, here, "fhir_authorize\nhandle /fhir/* {\n\tfhir_bearer\n\trespond ok\n}", []string{"Caddyfile:12 (localhost): fhir_bearer has the matcher /fhir/*, but the FHIR base is /fhir/R4; set fhir_base in the global option fhir or in fhir_bearer"}},
		{"matcher beside the base", here, here, "fhir_authorize\nfhir_expand /api/*\nrespond ok", []string{"fhir_expand has the matcher /api/*, but the FHIR base is /fhir/R4; set fhir_base in the global option fhir or in fhir_expand"}},
		{"fhir_authorize behind the guard", here, here, "fhir_bearer\nhandle {\n\tfhir_authorize\n}", []string{"fhir_bearer precedes fhir_authorize"}},
		{"fhir_authorize after the guard in a route", here, here, "route {\n\tfhir_bearer\n\tfhir_authorize\n}", []string{"fhir_bearer precedes fhir_authorize"}},
		{"fhir_expand after a handle", here, here, "fhir_authorize\nhandle {\n\treverse_proxy 127.0.0.1:1\n}\nfhir_expand", []string{"fhir_expand is never reached", "reverse_proxy to 127.0.0.1:1 serves requests below"}},
		{"fhir_expand beside the handle of the API", here, here, "fhir_authorize\n@fhir path /fhir/R4 /fhir/R4/*\nhandle @fhir {\n\tfhir_bearer\n\treverse_proxy 127.0.0.1:1\n}\nfhir_expand", []string{"fhir_expand is never reached"}},
		{"guard after what answers", here, here, "route {\n\tfhir_authorize\n\trespond ok\n\tfhir_bearer\n}", []string{"Caddyfile:13 (localhost): fhir_bearer is never reached"}},
		{"fhir_authorize after what answers", here, here, "route {\n\treverse_proxy 127.0.0.1:1\n\tfhir_authorize\n}", []string{"Caddyfile:12 (localhost): fhir_authorize is never reached", "reverse_proxy to 127.0.0.1:1 serves requests below"}},
		{"fhir_expand before the guard", here, here, "fhir_authorize\nroute {\n\tfhir_expand\n\tfhir_bearer\n}", []string{"Caddyfile:12 (localhost): fhir_expand precedes fhir_bearer and responds without a token"}},
		{"fhir_expand before the guard of something else", here, here, "fhir_authorize\nhandle /fhir/R4/ValueSet/* {\n\tfhir_expand\n}\nhandle /fhir/R4* {\n\tfhir_bearer\n}", nil},
		{"base that is stripped", here, here, "fhir_authorize\nhandle_path /fhir/R4/* {\n\tfhir_bearer\n}", []string{"Caddyfile:12 (localhost): fhir_bearer never matches because handle_path or uri strips /fhir/R4, which is part of the FHIR base"}},
		{"base that uri strips", here, here, "fhir_authorize\nhandle /fhir/R4/* {\n\troute {\n\t\turi strip_prefix /fhir\n\t\tfhir_bearer\n\t}\n}", []string{"strips /fhir, which is part of the FHIR base"}},
		{"the API by another way without a guard", here, here, guardedAPI + "\nhandle {\n\treverse_proxy 127.0.0.1:1\n}", []string{"localhost: reverse_proxy forwards to 127.0.0.1:1 without fhir_bearer, although another route protects"}},
		{"the API guarded in part", here, here, "fhir_authorize\nfhir_bearer /fhir/R4/*\nreverse_proxy 127.0.0.1:1", []string{"the matcher of fhir_bearer does not cover the FHIR base /fhir/R4", "reverse_proxy forwards to 127.0.0.1:1 without fhir_bearer"}},
		{"the part that is guarded", here, here, "fhir_authorize\nfhir_bearer /fhir/R4*\nreverse_proxy /fhir/R4/Patient/* 127.0.0.1:1", nil},
		{"another server without a guard", here, here, guardedAPI + "\nhandle {\n\treverse_proxy 127.0.0.1:2\n}", nil},
		{"matcher that leaves out the base", here, here, "fhir_authorize\nhandle /fhir/R4/* {\n\tfhir_bearer\n\treverse_proxy 127.0.0.1:1\n}", []string{"Caddyfile:12 (localhost): the matcher of fhir_bearer does not cover the FHIR base /fhir/R4"}},
		{"matcher of the base alone", here, here, "fhir_authorize\nhandle /fhir/R4 {\n\tfhir_bearer\n\treverse_proxy 127.0.0.1:1\n}", []string{"the matcher of fhir_bearer does not cover the FHIR base /fhir/R4"}},
		{"matcher of another base below it", here, here, "fhir_authorize\n@fhir path /r4 /fhir/R4/v1 /fhir/R4/v1/*\nhandle @fhir {\n\tfhir_bearer {\n\t\tfhir_base /fhir/R4\n\t}\n}", []string{"fhir_bearer has the matcher /r4", "the matcher of fhir_bearer does not cover the FHIR base /fhir/R4"}},
		{"matcher of a part", here, here, "fhir_authorize\nhandle /fhir/R4/ValueSet/* {\n\tfhir_bearer\n}", nil},
		{"no guard at all", here, here, "fhir_authorize\n@fhir path /fhir/R4 /fhir/R4/*\nhandle @fhir {\n\tfhir_expand\n\treverse_proxy 127.0.0.1:1\n}", []string{"reverse_proxy to 127.0.0.1:1 serves requests below the FHIR base /fhir/R4 without fhir_bearer"}},
		{"unguarded paths", here, here, "fhir_authorize\nfhir_bearer /fhir/R4/Patient/*\nreverse_proxy /fhir/R4/Patient/* 127.0.0.1:1\nreverse_proxy 127.0.0.1:2", []string{"reverse_proxy forwards to 127.0.0.1:2 without fhir_bearer"}},
		{"another server for one type", here, here, "fhir_authorize\nhandle /fhir/R4/Patient* {\n\treverse_proxy 127.0.0.1:2\n}\n" + strings.TrimPrefix(guardedAPI, "fhir_authorize\n"), []string{"reverse_proxy to 127.0.0.1:2 serves requests below"}},
		{"another server beside the API", here, here, guardedAPI + "\nhandle /app/* {\n\treverse_proxy 127.0.0.1:2\n}", nil},
		{"fhir_expand beside the handle of something else", here, here, "fhir_authorize\nfhir_bearer\nhandle /docs/* {\n\trespond ok\n}\nfhir_expand\nreverse_proxy 127.0.0.1:1", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGateway(t, siteWith(tt.issuer, tt.address, tt.body))
			warnings := strings.Join(siteWarnings(t, g.Context), "\n")
			if len(tt.want) == 0 && warnings != "" {
				t.Errorf("warned: %s", warnings)
			}
			for _, want := range tt.want {
				if !strings.Contains(warnings, want) || strings.Count(warnings, "\n") != len(tt.want)-1 {
					t.Errorf("got %q, want %d lines, one with %q", warnings, len(tt.want), want)
				}
			}
		})
	}
}

// A site behind a proxy that terminates TLS causes no warning if trusted_proxies includes the proxy.
func TestSiteBehindTrustedProxy(t *testing.T) {
	t.Parallel()
	caddyfile := strings.Replace(siteWith("https://a.example", "http://a.example:8080", guardedAPI), "{\n", "{\n\tservers {\n\t\ttrusted_proxies static 127.0.0.1/32\n\t}\n", 1)
	if warnings := siteWarnings(t, newGateway(t, caddyfile).Context); len(warnings) > 0 {
		t.Errorf("warned: %q", warnings)
	}
}

// Caddyfile.example, the starting point of most configurations, causes no warning.
func TestExampleHasNoWarnings(t *testing.T) {
	t.Parallel()
	if warnings := siteWarnings(t, exampleGateway(t, nil).Context); len(warnings) > 0 {
		t.Errorf("%q", warnings)
	}
}

// Sites without the global option fhir are checked too, because each handler can be used without it.
func TestSitesWithoutApp(t *testing.T) {
	t.Parallel()
	const globals = "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\n"
	tests := []struct{ name, body, want string }{
		{"guard", "handle /fhir* {\n\t\tfhir_bearer {\n\t\t\ttrust https://login.example fhir-api\n\t\t}\n\t}", "Caddyfile:8 (localhost): fhir_bearer has the matcher /fhir*"},
		{"expansions", "fhir_expand /api/*", "Caddyfile:7 (localhost): fhir_expand has the matcher /api/*"},
		{"nothing of ours", "respond ok", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGateway(t, globals+"https://localhost {\n\t"+tt.body+"\n}\n")
			if got := strings.Join(siteWarnings(t, g.Context), "\n"); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// An error that is detected only in the adapted JSON still contains the directive's line.
func TestProvisionErrorNamesLine(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, body, want string }{
		{"certificate that is missing", "fhir_bearer {\n\ttrust https://login.example api {\n\t\ttls_ca /nowhere.pem\n\t}\n}", "at Caddyfile:10"},
		{"secret that is missing", "respond ok\nfhir_expand {\n\tupstream https://tx.example {\n\t\tbearer {env.NO_SUCH_TOKEN}\n\t}\n}", "at Caddyfile:11"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := gatewaytest.Provision(t, gatewaytest.Adapt(t, siteWith("https://localhost", "https://localhost", tt.body)))
			if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// A configuration without sites causes no warning.
func TestSitesOfNoServer(t *testing.T) {
	t.Parallel()
	ctx, err := gatewaytest.Provision(t, &caddy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	app, err := ctx.App("fhir_sites")
	if err != nil {
		t.Fatal(err)
	}
	if err := app.(*placement.Sites).Start(); err != nil {
		t.Error(err)
	}
}

// `caddy validate`, which doesn't start the configuration, logs the same warnings.
func TestValidateShowsWarnings(t *testing.T) {
	t.Parallel()
	config := gatewaytest.Adapt(t, siteWith("https://localhost", "https://localhost", "fhir_authorize\nhandle /fhir/* {\n\tfhir_bearer\n}"))
	file := filepath.Join(t.TempDir(), "log")
	config.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		caddy.DefaultLoggerName: {BaseLog: caddy.BaseLog{WriterRaw: caddyconfig.JSON(map[string]string{"output": "file", "filename": file}, nil)}},
	}}
	ctx, err := gatewaytest.Provision(t, config)
	if err != nil {
		t.Fatal(err)
	}
	sites, err := placement.LoadSites(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := sites.Cleanup(); err != nil || strings.Count(gatewaytest.ReadFile(t, file), "fhir_bearer has the matcher /fhir/*") != 1 {
			t.Errorf("%v, logged %s", err, gatewaytest.ReadFile(t, file))
		}
	}
}
