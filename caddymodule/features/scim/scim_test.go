package scim_test

import (
	"errors"
	"flag"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/scim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

const (
	scimPath = "/oauth2/scim/hospital"
	secret   = "5f0c6b1d4e8a4b7c9d2e3f405162738495a6b7c8d9eaf0b1"
)

// request sends a request with the correct token.
func request(t *testing.T, s http.Handler, method, below, body string) (int, map[string]any) {
	t.Helper()
	r := authorizetest.PostRequest(scimPath+below, nil)
	r.Method = method
	r.Header.Set("Content-Type", "application/scim+json")
	r.Header.Set("Authorization", "Bearer "+secret)
	answer := authorizetest.SendBody(t, s, r, body)
	if answer.StatusCode == http.StatusNoContent {
		return answer.StatusCode, nil
	}
	if kind := answer.Header.Get("Content-Type"); kind != "application/scim+json" {
		t.Errorf("%s %s: Content-Type %q", method, below, kind)
	}
	return answer.StatusCode, authorizetest.Decode[map[string]any](t, answer)
}

func withSCIM(idp *people.IdentityProvider, c *authorize.Config) {
	authorizetest.AllowRefreshTokens(c)
	c.Features = append(c.Features, &scim.SCIM{Token: secret, Provider: idp.Key})
}

// DELETE, and active=false in the formats of Entra ID and Okta, end all access of the person (RFC 7644 §3.5, §3.6).
func TestSCIM(t *testing.T) {
	t.Parallel()
	const (
		byName    = `{"userName":"alice@hospital.example","externalId":"aadams"}`
		bySubject = `{"userName":"someone","externalId":"248289761001"}`
		byOID     = `{"userName":"someone","externalId":"0b1"}`
	)
	oid := func(idp *people.IdentityProvider, c *authorize.Config) { withSCIM(idp, c); idp.Sub = "oid" }
	operations := func(operation string) string {
		return `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[` + operation + `]}`
	}
	for _, tt := range []struct {
		name, created, method, body string
		change                      func(*people.IdentityProvider, *authorize.Config)
		status                      int
		working                     string
	}{
		{"DELETE", byName, http.MethodDelete, "", withSCIM, 204, "nothing"},
		{"DELETE by the subject", bySubject, http.MethodDelete, "", withSCIM, 204, "nothing"},
		{"DELETE by the sub here", byOID, http.MethodDelete, "", oid, 204, "nothing"},
		{"DELETE of an unknown sub", byOID, http.MethodDelete, "", withSCIM, 204, "all"},
		{"DELETE of an unknown person", `{"userName":"x"}`, http.MethodDelete, "", withSCIM, 204, "all"},
		{"PATCH of Entra ID", byName, http.MethodPatch, operations(`{"op":"Replace","path":"active","value":"False"}`), withSCIM, 200, "nothing"},
		{"PATCH of Entra ID, as a list", byName, http.MethodPatch, operations(`{"op":"Replace","path":"active","value":[{"$ref":null,"value":"False"}]}`), withSCIM, 200, "nothing"},
		{"PATCH with two values", byName, http.MethodPatch, operations(`{"op":"Replace","path":"active","value":[{"value":"True"},{"value":"False"}]}`), withSCIM, 400, "all"},
		{"PATCH without a value", byName, http.MethodPatch, operations(`{"op":"Replace","path":"active","value":[{}]}`), withSCIM, 400, "all"},
		{"PATCH with a repeated name", byName, http.MethodPatch, operations(`{"op":"replace","value":{"active":false,"active":true}}`), withSCIM, 400, "all"},
		{"PUT with a repeated name", byName, http.MethodPut, `{"userName":"alice@hospital.example","active":true,"active":false}`, withSCIM, 400, "all"},
		{"PATCH of Entra ID, as a boolean", byName, http.MethodPatch, operations(`{"op":"replace","path":"active","value":false}`), withSCIM, 200, "nothing"},
		{"PATCH of Okta", byName, http.MethodPatch, operations(`{"op":"replace","value":{"active":false}}`), withSCIM, 200, "nothing"},
		{"PATCH of the name in full", byName, http.MethodPatch, operations(`{"op":"add","path":"urn:ietf:params:scim:schemas:core:2.0:User:active","value":false}`), withSCIM, 200, "nothing"},
		{"PATCH among others", byName, http.MethodPatch, operations(`{"op":"remove","path":"title"},{"op":"replace","path":"displayName","value":"A"},{"op":"replace","value":{"name":{},"active":"false"}}`), withSCIM, 200, "nothing"},
		{"PATCH to active", byName, http.MethodPatch, operations(`{"op":"replace","path":"active","value":true}`), withSCIM, 200, "all"},
		{"PATCH of something else", byName, http.MethodPatch, operations(`{"op":"replace","path":"userName","value":"false"}`), withSCIM, 200, "all"},
		{"PATCH of nothing", byName, http.MethodPatch, operations(""), withSCIM, 200, "all"},
		{"PATCH of a group of words", byName, http.MethodPatch, operations(`{"op":"replace","path":"active","value":"no"}`), withSCIM, 400, "all"},
		{"PATCH of another kind", byName, http.MethodPatch, operations(`{"op":"move","path":"active","value":false}`), withSCIM, 400, "all"},
		{"PATCH without a path or object", byName, http.MethodPatch, operations(`{"op":"replace","value":false}`), withSCIM, 400, "all"},
		{"PATCH that is no JSON", byName, http.MethodPatch, "active=false", withSCIM, 400, "all"},
		{"PUT", byName, http.MethodPut, `{"userName":"alice@hospital.example","active":false}`, withSCIM, 200, "nothing"},
		{"PUT with another name", byName, http.MethodPut, `{"userName":"other","active":false}`, withSCIM, 200, "nothing"},
		{"PUT of an active one", byName, http.MethodPut, `{"userName":"alice@hospital.example","active":true}`, withSCIM, 200, "all"},
		{"PUT without a name", byName, http.MethodPut, `{"active":false}`, withSCIM, 400, "all"},
		{"GET", byName, http.MethodGet, "", withSCIM, 200, "all"},
		{"POST", byName, http.MethodPost, byName, withSCIM, 405, "all"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := authorizetest.NewFederatedServer(t, providertest.Start(t, authorizetest.SetNameClaims), tt.change)
			alice := authorizetest.SignInFederated(t, s)
			status, made := request(t, s, http.MethodPost, "/Users", tt.created)
			id, _ := made["id"].(string)
			if status != http.StatusCreated || id == "" || made["active"] != true {
				t.Fatalf("POST: %d %v", status, made)
			}
			status, resource := request(t, s, tt.method, "/Users/"+id, tt.body)
			if status != tt.status || status == http.StatusOK && (resource["id"] != id || resource["active"] != (tt.working == "all")) {
				t.Errorf("%d %v", status, resource)
			}
			if working := alice.WorkingCredentials(); working != tt.working {
				t.Errorf("working credentials: %s", working)
			}
		})
	}
}

// staff is a server with an identity provider that reassigns user names and provisions people.
type staff struct {
	t *testing.T
	p *providertest.Provider
	s http.Handler
}

func (st staff) signIn(subject, userName string) *authorizetest.FederatedPerson {
	st.p.Change(func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: subject, Claims: map[string]any{"preferred_username": userName, "employee": subject + "-number"}}}
	})
	return authorizetest.SignInFederated(st.t, st.s)
}

func (st staff) create(userName string) string {
	status, made := request(st.t, st.s, http.MethodPost, "/Users", `{"userName":"`+userName+`"}`)
	if status != http.StatusCreated {
		st.t.Fatalf("POST %s: %d %v", userName, status, made)
	}
	return "/Users/" + made["id"].(string)
}

func (st staff) rename(id, userName string) {
	status, resource := request(st.t, st.s, http.MethodPatch, id, `{"Operations":[{"op":"replace","path":"userName","value":"`+userName+`"}]}`)
	if status != http.StatusOK || resource["userName"] != userName || "/Users/"+resource["id"].(string) != id {
		st.t.Errorf("rename: %d %v", status, resource)
	}
}

func (st staff) delete(id string) {
	if status, _ := request(st.t, st.s, http.MethodDelete, id, ""); status != http.StatusNoContent {
		st.t.Errorf("DELETE: %d", status)
	}
}

// The id of a User belongs to one person, even if the person's name changes or another person gets the name.
func TestSCIMAfterRename(t *testing.T) {
	t.Parallel()
	for name, rename := range map[string]func(st staff) (removed, stays *authorizetest.FederatedPerson){
		"signed in before the SCIM user was created": func(st staff) (removed, stays *authorizetest.FederatedPerson) {
			st.signIn("ann", "alice")
			id := st.create("alice")
			ann := st.signIn("ann", "alice2")
			ben := st.signIn("ben", "alice")
			st.delete(id)
			return ann, ben
		},
		"signed in after the SCIM user was created": func(st staff) (removed, stays *authorizetest.FederatedPerson) {
			id := st.create("alice")
			st.signIn("ann", "alice")
			ann := st.signIn("ann", "alice2")
			ben := st.signIn("ben", "alice")
			st.delete(id)
			return ann, ben
		},
		"renamed by SCIM before the first sign-in": func(st staff) (removed, stays *authorizetest.FederatedPerson) {
			id := st.create("alice")
			st.rename(id, "alice2")
			ben := st.signIn("ben", "alice")
			ann := st.signIn("ann", "alice2")
			st.delete(id)
			return ann, ben
		},
		"renamed by SCIM to the previous name of another person": func(st staff) (removed, stays *authorizetest.FederatedPerson) {
			id := st.create("alice")
			st.signIn("zed", "alice2")
			zed := st.signIn("zed", "zed")
			st.rename(id, "alice2")
			ann := st.signIn("ann", "alice2")
			st.delete(id)
			return ann, zed
		},
		"assigned to another person by SCIM": func(st staff) (removed, stays *authorizetest.FederatedPerson) {
			st.signIn("ann", "alice")
			_, made := request(st.t, st.s, http.MethodPost, "/Users", `{"userName":"alice","externalId":"ann"}`)
			id := "/Users/" + made["id"].(string)
			ann, ben := st.signIn("ann", "ann"), st.signIn("ben", "alice")
			request(st.t, st.s, http.MethodPatch, id, `{"Operations":[{"op":"replace","path":"externalId","value":"ben"}]}`)
			st.delete(id)
			return ben, ann
		},
		"given another attribute as externalId": func(st staff) (removed, stays *authorizetest.FederatedPerson) {
			ann := st.signIn("ann", "alice")
			_, made := request(st.t, st.s, http.MethodPost, "/Users", `{"userName":"alice","externalId":"ann"}`)
			id := "/Users/" + made["id"].(string)
			ben := st.signIn("ben", "alice")
			request(st.t, st.s, http.MethodPatch, id, `{"Operations":[{"op":"replace","path":"externalId","value":"directory-id"}]}`)
			st.delete(id)
			return ann, ben
		},
		"renamed by SCIM, without a sign-in since": func(st staff) (removed, stays *authorizetest.FederatedPerson) {
			ann := st.signIn("ann", "alice")
			st.rename(st.create("alice"), "alice2")
			id := st.create("alice")
			ben := st.signIn("ben", "alice")
			st.delete(id)
			return ben, ann
		},
		"twice": func(st staff) (removed, stays *authorizetest.FederatedPerson) {
			id := st.create("alice")
			ann := st.signIn("ann", "alice")
			st.delete(id)
			ben := st.signIn("ben", "alice")
			if status, _ := request(st.t, st.s, http.MethodDelete, id, ""); status != http.StatusNotFound {
				st.t.Errorf("second DELETE: %d", status)
			}
			return ann, ben
		},
		"created again after a deletion": func(st staff) (removed, stays *authorizetest.FederatedPerson) {
			st.signIn("ann", "alice")
			st.delete(st.create("alice"))
			id := st.create("alice")
			ann := st.signIn("ann", "alice")
			st.delete(id)
			return ann, st.signIn("ben", "alice")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := providertest.Start(t)
			removed, stays := rename(staff{t, p, authorizetest.NewFederatedServer(t, p, withSCIM)})
			if working := removed.WorkingCredentials(); working != "nothing" {
				t.Errorf("removed user: working credentials: %s", working)
			}
			if working := stays.WorkingCredentials(); working != "all" {
				t.Errorf("other user: working credentials: %s", working)
			}
		})
	}
}

// A name that several people have is an error and ends no access.
func TestSCIMAmbiguousName(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederatedServer(t, p, withSCIM)
	st := staff{t, p, s}
	ann, ben := st.signIn("ann", "ward"), st.signIn("ben", "ward")
	if status, answer := request(t, s, http.MethodPost, "/Users", `{"userName":"ward","active":false}`); status != http.StatusConflict || answer["scimType"] != "uniqueness" {
		t.Errorf("%d %v", status, answer)
	}
	if a, b := ann.WorkingCredentials(), ben.WorkingCredentials(); a != "all" || b != "all" {
		t.Errorf("left: %s, %s", a, b)
	}
}

// After a DELETE, another person may claim the sub, but not after a deactivation.
func TestSCIMReleasesSub(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]bool{http.MethodDelete: true, http.MethodPut: false} {
		p, storage := providertest.Start(t), store.NewMemory(0, 0)
		s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			withSCIM(idp, c)
			idp.Sub, c.Store = "employee", storage
		})
		st := staff{t, p, s}
		ann := st.signIn("ann", "alice")
		status, _ := request(t, s, method, st.create("alice"), `{"userName":"alice","active":false}`)
		owner, err := storage.Get(t.Context(), store.Key("sub-owner", "ann-number"))
		if working := ann.WorkingCredentials(); status >= 300 || working != "nothing" || err != nil || strings.Contains(string(owner), "released") != want {
			t.Errorf("%s: %d, working credentials: %s, owner %s, %v", method, status, working, owner, err)
		}
	}
}

// A filter by name or id finds only people of the provider who have a gateway account (RFC 7644 §3.4.2.2).
func TestSCIMFilter(t *testing.T) {
	t.Parallel()
	s := authorizetest.NewFederatedServer(t, providertest.Start(t, authorizetest.SetNameClaims), withSCIM)
	authorizetest.SignInFederated(t, s)
	for _, tt := range []struct {
		filter        string
		status, found int
	}{
		{`userName eq "alice@hospital.example"`, 200, 1},
		{`USERNAME EQ "ALICE@hospital.example"`, 200, 1},
		{` userName  eq  "a.adams@hospital.example" `, 200, 1},
		{`urn:ietf:params:scim:schemas:core:2.0:User:userName eq "alice@hospital.example"`, 200, 1},
		{`externalId eq "248289761001"`, 200, 1},
		{`externalId eq "alice@hospital.example"`, 200, 0},
		{`userName eq "248289761001"`, 200, 0},
		{`userName eq "bob"`, 200, 0},
		{`userName eq "alice"`, 200, 0}, // a local user
		{`userName eq "x\" or userName eq \"y"`, 200, 0},
		{``, 200, 1}, // all names above belong to one person
		{`userName eq ""`, 400, 0},
		{`userName eq "` + strings.Repeat("x", 256) + `"`, 400, 0},
		{`userName eq alice`, 400, 0},
		{`userName sw "a"`, 400, 0},
		{`userName eq "a" or userName eq "b"`, 400, 0},
		{`not (userName eq "a")`, 400, 0},
		{`userName pr`, 400, 0},
		{`displayName eq "Alice"`, 400, 0},
		{`"`, 400, 0},
	} {
		target := "/Users?" + url.Values{"filter": {tt.filter}}.Encode()
		if tt.filter == "" {
			target = "/Users?startIndex=1&count=100"
		}
		status, answer := request(t, s, http.MethodGet, target, "")
		found, _ := answer["totalResults"].(float64)
		if status != tt.status || int(found) != tt.found || status == http.StatusBadRequest && answer["schemas"].([]any)[0] != "urn:ietf:params:scim:api:messages:2.0:Error" {
			t.Errorf("%s: %d %v", tt.filter, status, answer)
		}
		if tt.found == 0 {
			continue
		}
		id := answer["Resources"].([]any)[0].(map[string]any)["id"].(string)
		if status, resource := request(t, s, http.MethodGet, "/Users/"+id, ""); status != http.StatusOK || resource["id"] != id || resource["userName"] == "" {
			t.Errorf("%s: %d %v", tt.filter, status, resource)
		}
	}
}

// Requests must contain the token. Wrong tokens count toward the lockout.
func TestSCIMToken(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, authorizetest.SetNameClaims)
	s := authorizetest.NewFederatedServer(t, p, withSCIM)
	alice := authorizetest.SignInFederated(t, s)
	_, made := request(t, s, http.MethodPost, "/Users", `{"userName":"alice@hospital.example"}`)
	remove := func(s http.Handler, authorization string) *http.Response {
		r := authorizetest.PostRequest(scimPath+"/Users/"+made["id"].(string), nil)
		r.Method = http.MethodDelete
		r.Header.Set("Authorization", authorization)
		return authorizetest.SendBody(t, s, r, "")
	}
	for _, authorization := range []string{"", "Bearer", "Bearer ", "Basic " + secret, secret, "Bearer " + secret + "x", "Bearer " + alice.AccessToken} {
		r := remove(s, authorization)
		if r.StatusCode != http.StatusUnauthorized || r.Header.Get("WWW-Authenticate") != "Bearer" || authorizetest.Decode[map[string]any](t, r)["status"] != "401" {
			t.Errorf("%q: %d", authorization, r.StatusCode)
		}
	}
	if working := alice.WorkingCredentials(); working != "all" {
		t.Errorf("working credentials: %s", working)
	}
	s = authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		c.Features = append(c.Features, &scim.SCIM{Token: "guessable", Provider: idp.Key})
		c.Lockout = lockout.Policy{Failures: 3}
	})
	for i := range 4 {
		if r := remove(s, "Bearer wrong"); (r.StatusCode == http.StatusTooManyRequests) != (i == 3) || (r.Header.Get("Retry-After") != "") != (i == 3) {
			t.Errorf("try %d: %d", i, r.StatusCode)
		}
	}
	if r := remove(authorizetest.NewFederatedServer(t, p, nil), "Bearer "); r.StatusCode != http.StatusNotFound {
		t.Errorf("without the option: %d", r.StatusCode)
	}
}

// Other paths return 404.
func TestSCIMPaths(t *testing.T) {
	t.Parallel()
	s := authorizetest.NewFederatedServer(t, providertest.Start(t), withSCIM)
	for _, tt := range []struct {
		method, below string
		status        int
	}{
		{http.MethodGet, "/ServiceProviderConfig", 200},
		{http.MethodPost, "/ServiceProviderConfig", 405},
		{http.MethodGet, "/ServiceProviderConfig/x", 404},
		{http.MethodGet, "/ResourceTypes", 200},
		{http.MethodGet, "/ResourceTypes/User", 200},
		{http.MethodGet, "/ResourceTypes/Group", 404},
		{http.MethodPut, "/ResourceTypes/User", 405},
		{http.MethodGet, "/Schemas", 200},
		{http.MethodGet, "/Schemas/urn:ietf:params:scim:schemas:core:2.0:User", 200},
		{http.MethodDelete, "/Schemas", 405},
		{http.MethodDelete, "/Users", 405},
		{http.MethodPost, "/Users/.search", 501},
		{http.MethodPost, "/.search", 501},
		{http.MethodPost, "/Bulk", 404},
		{http.MethodGet, "/Me", 404},
		{http.MethodPatch, "/Groups", 405},
		{http.MethodGet, "/Groups/*", 404},
		{http.MethodGet, "/", 404},
		{http.MethodGet, "", 404},
		{http.MethodGet, "/Users/", 404},
		{http.MethodDelete, "/Users/unknown", 404},
		{http.MethodDelete, "/Users/%00%ff", 404},
		{http.MethodDelete, "/Users/YQBi/", 404},
		{http.MethodDelete, "/Users/*", 404},
	} {
		if status, answer := request(t, s, tt.method, tt.below, ""); status != tt.status {
			t.Errorf("%s %s: %d %v", tt.method, tt.below, status, answer)
		}
	}
}

// If the store fails, the response is 503, and a retry succeeds.
func TestSCIMFails(t *testing.T) {
	t.Parallel()
	fails := false
	intercepted := storetest.NewInterceptedStore(func(_, key string) error {
		if fails && strings.HasPrefix(key, "sessions:") {
			return errors.New("the store is away")
		}
		return nil
	})

	s := authorizetest.NewFederatedServer(t, providertest.Start(t, authorizetest.SetNameClaims), func(idp *people.IdentityProvider, c *authorize.Config) {
		withSCIM(idp, c)
		c.Store = intercepted
	})
	alice := authorizetest.SignInFederated(t, s)
	_, made := request(t, s, http.MethodPost, "/Users", `{"userName":"alice@hospital.example"}`)
	target := "/Users/" + made["id"].(string)
	fails = true
	if status, answer := request(t, s, http.MethodDelete, target, ""); status != http.StatusServiceUnavailable || answer["status"] != "503" {
		t.Errorf("%d %v", status, answer)
	}
	fails = false
	if status, _ := request(t, s, http.MethodDelete, target, ""); status != http.StatusNoContent || alice.WorkingCredentials() != "nothing" {
		t.Errorf("again: %d, left: %s", status, alice.WorkingCredentials())
	}
}

// If SCIM deletes a person while their sign-in is being stored, this sign-in fails and the next one succeeds.
func TestSCIMWhileSigningIn(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, authorizetest.SetNameClaims)
	var s http.Handler
	var once sync.Once
	armed := false
	intercepted := storetest.NewInterceptedStore(func(method, key string) error {
		if armed && method == "Put" && strings.HasPrefix(key, "session:") {
			once.Do(func() {
				if status, made := request(t, s, http.MethodPost, "/Users", `{"userName":"alice@hospital.example","active":false}`); status != http.StatusCreated {
					t.Errorf("%d %v", status, made)
				}
			})
		}
		return nil
	})
	s = authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) { withSCIM(idp, c); c.Store = intercepted })
	authorizetest.SignInFederated(t, s) // create the account
	armed = true
	b := authorizetest.NewBrowser(t, s)
	if back := authorizetest.SignInAtProvider(b, nil); back.Query().Get("error") != "login_required" || b.HasSession() {
		t.Errorf("%v, signed in: %v", back, b.HasSession())
	}
	if working := authorizetest.SignInFederated(t, s).WorkingCredentials(); working != "all" {
		t.Errorf("next sign-in: working credentials: %s", working)
	}
}

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

// Scripts of other origins cannot use the endpoint (CORS), because only servers call it.
func TestCORS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("idp hospital oidc {\n\t\t\tissuer https://login.hospital.example\n\t\t\tclient_id c\n\t\t\tclient_secret s\n\t\t\tscim 0123456789abcdef0123456789abcdef0123456789\n\t\t}"))
	gatewaytest.CheckCORS(t, g, http.MethodGet, "/oauth2/scim/hospital/Users", "", "a-token")
}

var update = flag.Bool("update", false, "write the golden file anew")

func TestAdapt(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckGolden(t, "testdata/adapt.caddyfiletest", *update)
}

func TestSCIMWithoutToken(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckCaddyfileError(t, gatewaytest.AppCaddyfile("idp h {\n\t\t\tscim\n\t\t}"), 5, "scim has no value")
}

const (
	clinicSecret = "0c7e1a52f39d4c18b6a0e47d2f8c915be3a4d6f70819c2b5"
	clinicSCIM   = "/oauth2/scim/clinic/Users"
)

// send sends a SCIM request with the clinic's token. It returns the id of the User in the response.
func send(c authorizetest.Clinic, method, target, body string) (id string) {
	c.T.Helper()
	r := authorizetest.PostRequest(target, nil)
	r.Method = method
	r.Header.Set("Content-Type", "application/scim+json")
	r.Header.Set("Authorization", "Bearer "+clinicSecret)
	response := authorizetest.SendBody(c.T, c.Server, r, body)
	switch {
	case response.StatusCode == http.StatusConflict: // another User has the name in a different case
		return ""
	case response.StatusCode >= 300 && !strings.HasSuffix(target, "/"):
		c.T.Errorf("%s %s: %d %s", method, target, response.StatusCode, authorizetest.Body(c.T, response))
		return ""
	case response.StatusCode == http.StatusNoContent:
		return ""
	}
	id, _ = authorizetest.Decode[map[string]any](c.T, response)["id"].(string)
	return id
}

// A SCIM request (RFC 7644) of one identity provider cannot end the access of another provider's person, regardless of the
// identifiers it contains.
func TestPersonOfAnotherProvider(t *testing.T) {
	t.Parallel()
	const members = `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[{"op":"replace","path":"active","value":false}]}`
	authorizetest.CheckForeignProvider(t, func(idp *people.IdentityProvider, c *authorize.Config) {
		withSCIM(idp, c)
		c.Features = append(c.Features, &scim.SCIM{Token: clinicSecret, Provider: "clinic"})
	}, map[string]func(c authorizetest.Clinic, name string){
		"SCIM DELETE by externalId": func(c authorizetest.Clinic, name string) {
			send(c, http.MethodDelete, clinicSCIM+"/"+send(c, http.MethodPost, clinicSCIM, `{"externalId":"`+name+`"}`), "")
		},
		"SCIM DELETE by userName": func(c authorizetest.Clinic, name string) {
			send(c, http.MethodDelete, clinicSCIM+"/"+send(c, http.MethodPost, clinicSCIM, `{"userName":"`+name+`"}`), "")
		},
		"SCIM PATCH": func(c authorizetest.Clinic, name string) {
			send(c, http.MethodPatch, clinicSCIM+"/"+send(c, http.MethodPost, clinicSCIM, `{"userName":"x-`+name+`","externalId":"`+name+`"}`), members)
		},
		"SCIM PUT of another name": func(c authorizetest.Clinic, name string) {
			send(c, http.MethodPut, clinicSCIM+"/"+send(c, http.MethodPost, clinicSCIM, `{"userName":"x-`+name+`"}`), `{"userName":"`+name+`","externalId":"`+name+`","active":false}`)
		},
		"SCIM POST of an inactive User": func(c authorizetest.Clinic, name string) {
			send(c, http.MethodPost, clinicSCIM, `{"userName":"`+name+`","externalId":"`+name+`","active":false}`)
		},
	})
}

// Creating an inactive User ends the person's access. Creating an active User does not.
func TestSCIMCreate(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"userName":"alice@hospital.example","active":false}`:                "nothing",
		`{"userName":"alice@hospital.example","active":"False"}`:              "nothing",
		`{"userName":"x","externalId":"248289761001","active":false}`:         "nothing",
		`{"userName":"alice@hospital.example","active":true}`:                 "all",
		`{"userName":"alice@hospital.example"}`:                               "all",
		`{"userName":"bob@hospital.example","externalId":"x","active":false}`: "all",
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			s := authorizetest.NewFederatedServer(t, providertest.Start(t, authorizetest.SetNameClaims), withSCIM)
			alice := authorizetest.SignInFederated(t, s)
			if status, made := request(t, s, http.MethodPost, "/Users", body); status != http.StatusCreated {
				t.Errorf("%d %v", status, made)
			}
			if working := alice.WorkingCredentials(); working != want {
				t.Errorf("working credentials: %s, want %s", working, want)
			}
		})
	}
}

// find returns the ids of the Users in a list, and their total number.
func find(t *testing.T, s http.Handler, query string) (ids []string, total float64) {
	t.Helper()
	status, list := request(t, s, http.MethodGet, "/Users?"+query, "")
	if status != http.StatusOK {
		t.Errorf("%s: %d %v", query, status, list)
	}
	for _, user := range list["Resources"].([]any) {
		ids = append(ids, user.(map[string]any)["id"].(string))
	}
	return ids, list["totalResults"].(float64)
}

func filterQuery(filter string) string { return url.Values{"filter": {filter}}.Encode() }

// GET, filters and the list agree with what the provider created, changed and deleted, at every gateway.
func TestSCIMLifecycle(t *testing.T) {
	t.Parallel()
	p, shared := providertest.Start(t), store.NewMemory(0, 0)
	gateway := func() http.Handler {
		return authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) { withSCIM(idp, c); c.Store = shared })
	}
	s, other := gateway(), gateway()
	const body = `{"userName":"ann","externalId":"1"}`
	_, made := request(t, s, http.MethodPost, "/Users", body)
	id := "/Users/" + made["id"].(string)
	check := func(step, userName, externalID string, active any) {
		t.Helper()
		_, user := request(t, other, http.MethodGet, id, "")
		got, _ := user["externalId"].(string)
		if user["userName"] != userName || got != externalID || user["active"] != active {
			t.Errorf("%s: %v", step, user)
		}
		for _, query := range []string{"", filterQuery(`userName eq "` + strings.ToUpper(userName) + `"`)} {
			if ids, _ := find(t, other, query); len(ids) != 1 || "/Users/"+ids[0] != id {
				t.Errorf("%s: %q: %v", step, query, ids)
			}
		}
	}
	check("created", "ann", "1", true)
	for _, duplicate := range []string{body, `{"userName":"ANN"}`, `{"userName":"ben","externalId":"1"}`} {
		if status, answer := request(t, other, http.MethodPost, "/Users", duplicate); status != http.StatusConflict || answer["scimType"] != "uniqueness" {
			t.Errorf("%s: %d %v", duplicate, status, answer)
		}
	}
	for _, tt := range []struct {
		operation, userName, externalID string
		active                          any
	}{
		{`{"op":"replace","path":"active","value":false}`, "ann", "1", false},
		{`{"op":"replace","path":"displayName","value":"Ann"}`, "ann", "1", false},
		{`{"op":"replace","path":"active","value":true}`, "ann", "1", true},
		{`{"op":"remove","path":"active"}`, "ann", "1", nil},
		{`{"op":"replace","value":{"userName":"ann2","active":true}}`, "ann2", "1", true},
		{`{"op":"remove","path":"externalId"}`, "ann2", "", true},
	} {
		if status, user := request(t, s, http.MethodPatch, id, `{"Operations":[`+tt.operation+`]}`); status != http.StatusOK || user["active"] != tt.active {
			t.Errorf("%s: %d %v", tt.operation, status, user)
		}
		check(tt.operation, tt.userName, tt.externalID, tt.active)
	}
	if status, _ := request(t, s, http.MethodPost, "/Users", body); status != http.StatusCreated { // the names are free again
		t.Errorf("released names: %d", status)
	}
	for _, rename := range []string{`{"userName":"Ann"}`, `{"userName":"ann2","externalId":"1"}`} {
		if status, answer := request(t, s, http.MethodPut, id, rename); status != http.StatusConflict {
			t.Errorf("%s: %d %v", rename, status, answer)
		}
	}
	if status, _ := request(t, s, http.MethodDelete, id, ""); status != http.StatusNoContent {
		t.Errorf("DELETE: %d", status)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPatch} {
		if status, _ := request(t, other, method, id, `{"Operations":[]}`); status != http.StatusNotFound {
			t.Errorf("%s after DELETE: %d", method, status)
		}
	}
	if ids, _ := find(t, other, filterQuery(`userName eq "ann2"`)); len(ids) != 0 {
		t.Errorf("found after DELETE: %v", ids)
	}
}

// Pages cover every User once (RFC 7644 §3.4.2.4). Another provider's Users are not listed.
func TestSCIMPages(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		withSCIM(idp, c)
		clinic := authorizetest.HospitalProvider(p)
		clinic.Key = "clinic"
		c.IdentityProviders = append(c.IdentityProviders, clinic)
		c.Features = append(c.Features, &scim.SCIM{Token: clinicSecret, Provider: "clinic"})
	})
	send(authorizetest.Clinic{T: t, Server: s}, http.MethodPost, clinicSCIM, `{"userName":"a"}`)
	for name := range strings.SplitSeq("abcde", "") {
		request(t, s, http.MethodPost, "/Users", `{"userName":"`+name+`"}`)
	}
	var all []string
	for _, tt := range []struct {
		query string
		want  int
	}{{"startIndex=1&count=2", 2}, {"startIndex=3&count=2", 2}, {"startIndex=5&count=2", 1}, {"startIndex=6", 0}, {"count=0", 0}, {"startIndex=-1&count=-1", 0}} {
		ids, total := find(t, s, tt.query)
		if len(ids) != tt.want || total != 5 {
			t.Errorf("%s: %d of %v", tt.query, len(ids), total)
		}
		all = append(all, ids...)
	}
	if everyone, _ := find(t, s, ""); !slices.Equal(all, everyone) {
		t.Errorf("pages: %v, list: %v", all, everyone)
	}
}

// Of several concurrent requests to create a User, one succeeds.
func TestSCIMCreatedAtOnce(t *testing.T) {
	t.Parallel()
	s := authorizetest.NewFederatedServer(t, providertest.Start(t), withSCIM)
	statuses := make([]int, 8)
	var all sync.WaitGroup
	for i := range statuses {
		all.Go(func() { statuses[i], _ = request(t, s, http.MethodPost, "/Users", `{"userName":"ann"}`) })
	}
	all.Wait()
	slices.Sort(statuses)
	if statuses[0] != http.StatusCreated || statuses[1] != http.StatusConflict {
		t.Errorf("%v", statuses)
	}
	if ids, total := find(t, s, ""); len(ids) != 1 || total != 1 {
		t.Errorf("%v", ids)
	}
}

// A change that another gateway makes at the same time is preserved.
func TestSCIMChangedAtOnce(t *testing.T) {
	t.Parallel()
	var s http.Handler
	var id string
	intercepted := storetest.NewInterceptedStore(func(method, key string) error {
		if target := id; target != "" && (method == "Swap" || method == "Put") && strings.HasPrefix(key, "scim-user:") {
			id = "" // once
			request(t, s, http.MethodPatch, target, `{"Operations":[{"op":"replace","path":"active","value":false}]}`)
		}
		return nil
	})
	s = authorizetest.NewFederatedServer(t, providertest.Start(t), func(idp *people.IdentityProvider, c *authorize.Config) { withSCIM(idp, c); c.Store = intercepted })
	_, made := request(t, s, http.MethodPost, "/Users", `{"userName":"ann"}`)
	target := "/Users/" + made["id"].(string)
	id = target
	request(t, s, http.MethodPatch, target, `{"Operations":[{"op":"replace","path":"userName","value":"ann2"}]}`)
	if _, user := request(t, s, http.MethodGet, target, ""); user["active"] != false || user["userName"] != "ann2" {
		t.Errorf("%v", user)
	}
}

// The number of Users is limited. Deleted Users do not count.
func TestSCIMLimit(t *testing.T) {
	t.Parallel()
	memory := store.NewMemory(0, 0)
	s := authorizetest.NewFederatedServer(t, providertest.Start(t), func(idp *people.IdentityProvider, c *authorize.Config) { withSCIM(idp, c); c.Store = memory })
	if err := memory.Put(t.Context(), "scim-users:hospital", []byte("99999"), time.Hour); err != nil {
		t.Fatal(err)
	}
	_, made := request(t, s, http.MethodPost, "/Users", `{"userName":"ann"}`)
	for _, want := range []int{http.StatusInsufficientStorage, http.StatusCreated} {
		if status, answer := request(t, s, http.MethodPost, "/Users", `{"userName":"ben"}`); status != want {
			t.Errorf("%d %v, want %d", status, answer, want)
		}
		request(t, s, http.MethodDelete, "/Users/"+made["id"].(string), "")
	}
}

// Responses contain the selected attributes (RFC 7644 §3.9).
func TestSCIMAttributes(t *testing.T) {
	t.Parallel()
	s := authorizetest.NewFederatedServer(t, providertest.Start(t), withSCIM)
	_, made := request(t, s, http.MethodPost, "/Users", `{"userName":"ann","externalId":"1"}`)
	for query, want := range map[string]string{
		"": "active externalId id meta schemas userName", "attributes=userName": "id schemas userName",
		"attributes=urn:ietf:params:scim:schemas:core:2.0:User:active,%20meta.location": "active id meta schemas",
		"excludedAttributes=externalId,id,META":                                         "active id schemas userName",
	} {
		_, user := request(t, s, http.MethodGet, "/Users/"+made["id"].(string)+"?"+query, "")
		if got := strings.Join(slices.Sorted(maps.Keys(user)), " "); got != want {
			t.Errorf("%s: %s", query, got)
		}
	}
}

// Groups are accepted, so that providers do not stop provisioning, but not stored.
func TestSCIMGroups(t *testing.T) {
	t.Parallel()
	s := authorizetest.NewFederatedServer(t, providertest.Start(t), withSCIM)
	status, made := request(t, s, http.MethodPost, "/Groups", `{"displayName":"Ward 7","members":[{"value":"x"}]}`)
	if status != http.StatusCreated || made["displayName"] != "Ward 7" {
		t.Fatalf("POST: %d %v", status, made)
	}
	id := "/Groups/" + made["id"].(string)
	for method, want := range map[string]int{http.MethodGet: 200, http.MethodPut: 200, http.MethodPatch: 204, http.MethodDelete: 204} {
		if status, group := request(t, s, method, id, `{"Operations":[{"op":"add","path":"members","value":[]}]}`); status != want || want == 200 && group["displayName"] != "Ward 7" {
			t.Errorf("%s: %d %v", method, status, group)
		}
	}
	if status, list := request(t, s, http.MethodGet, "/Groups?"+filterQuery(`displayName eq "Ward 7"`), ""); status != http.StatusOK || list["totalResults"] != 0.0 {
		t.Errorf("list: %d %v", status, list)
	}
	if status, answer := request(t, s, http.MethodPost, "/Groups", `{}`); status != http.StatusBadRequest || answer["scimType"] != "invalidValue" {
		t.Errorf("without a name: %d %v", status, answer)
	}
}

// Entra ID's sub differs for each application and is no directory attribute. With sub oid, externalId is the object id: a User
// created before the first sign-in represents the person, even if the user names differ.
func TestSCIMObjectID(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) { withSCIM(idp, c); idp.Sub = "employee" })
	st := staff{t, p, s}
	_, made := request(t, s, http.MethodPost, "/Users", `{"userName":"guest#EXT#@hospital.example","externalId":"ann-number"}`)
	ann, ben := st.signIn("ann", "ann@partner.example"), st.signIn("ben", "ben")
	status, user := request(t, s, http.MethodPatch, "/Users/"+made["id"].(string), `{"Operations":[{"op":"Replace","path":"active","value":"False"}]}`)
	if working := ann.WorkingCredentials(); status != http.StatusOK || user["active"] != false || working != "nothing" {
		t.Errorf("%d %v, working credentials: %s", status, user, working)
	}
	if working := ben.WorkingCredentials(); working != "all" {
		t.Errorf("other person: working credentials: %s", working)
	}
}

// The id of a User belongs to the person who had the name when the id was issued, not to an earlier person with the same name.
func TestSCIMReassignedName(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	st := staff{t, p, authorizetest.NewFederatedServer(t, p, withSCIM)}
	st.signIn("zed", "alice")
	zed := st.signIn("zed", "zed")
	ann := st.signIn("ann", "alice")
	st.delete(st.create("alice"))
	if working := ann.WorkingCredentials(); working != "nothing" {
		t.Errorf("current owner of the name: %s", working)
	}
	if working := zed.WorkingCredentials(); working != "all" {
		t.Errorf("previous owner of the name: %s", working)
	}
}
