package authorize_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"

	"golang.org/x/crypto/bcrypt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// bcryptHashes compares passwords with bcrypt hashes.
type bcryptHashes struct{}

func (bcryptHashes) Compare(hash, password []byte) (bool, error) {
	err := bcrypt.CompareHashAndPassword(hash, password)
	if errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		return false, nil
	}
	return err == nil, err
}

// Example starts a server without Caddy, with one user and one app, and signs the user in.
func Example() {
	web := httptest.NewUnstartedServer(nil)
	hash, err := bcrypt.GenerateFromPassword([]byte("alice's password"), bcrypt.MinCost)
	if err != nil {
		log.Fatal(err)
	}
	server, err := authorize.New(authorize.Config{
		Issuer: "https://" + web.Listener.Addr().String(), FHIRBasePath: "/fhir/R4",
		Keys:      keyring.New(new(providertest.Storage), "keys.json", slog.Default()),
		Store:     store.NewMemory(0, 0),
		Passwords: bcryptHashes{},
		Users:     []people.User{{ID: "alice", PasswordHash: string(hash), FHIRUser: "Practitioner/alice"}},
		Clients: []client.Client{{
			ID: "app", RedirectURIs: []string{"https://app.example.org/callback"},
			Scopes: []string{"fhirUser", "user/*.rs"}, PKCE: client.PKCEOptional,
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	web.Config.Handler = server
	web.StartTLS()
	defer web.Close()

	code := signIn(web, url.Values{
		"response_type": {"code"}, "client_id": {"app"}, "redirect_uri": {"https://app.example.org/callback"},
		"scope": {"openid fhirUser user/Observation.rs"}, "state": {"af0ifjsldkj"},
	})
	answer, err := web.Client().PostForm(web.URL+"/oauth2/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "client_id": {"app"}, "redirect_uri": {"https://app.example.org/callback"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	var tokens struct {
		Type  string `json:"token_type"`
		Scope string `json:"scope"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&tokens); err != nil {
		log.Fatal(err)
	}
	fmt.Println(tokens.Type, tokens.Scope)
	// Output: Bearer openid fhirUser user/Observation.rs
}

var requestField = regexp.MustCompile(`name="request" value="([^"]*)"`)

// signIn performs alice's sign-in in a browser and returns the code sent to the app.
func signIn(web *httptest.Server, request url.Values) (code string) {
	jar, _ := cookiejar.New(nil) // cannot fail
	browser := http.Client{
		Transport: web.Client().Transport, Jar: jar,
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			if r.URL.Host == "app.example.org" {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	page, err := browser.Get(web.URL + "/oauth2/authorize?" + request.Encode())
	if err != nil {
		log.Fatal(err)
	}
	defer page.Body.Close()
	form, err := io.ReadAll(page.Body)
	if err != nil {
		log.Fatal(err)
	}
	back, err := browser.PostForm(web.URL+"/oauth2/login", url.Values{
		"request": {requestField.FindStringSubmatch(string(form))[1]}, "username": {"alice"}, "password": {"alice's password"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer back.Body.Close()
	to, err := back.Location()
	if err != nil {
		log.Fatal(err)
	}
	return to.Query().Get("code")
}
