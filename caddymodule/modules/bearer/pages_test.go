package bearer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
)

// A link sealed without the fhir app can be unsealed only with the same binding and within its lifetime.
func TestProcessSealing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ahead, wait time.Duration // offset of the clock when the link is sealed; time until the link is unsealed
		binding     string
		opens       bool
	}{
		"at once":                {0, 0, "alice", true},
		"by another person":      {0, 0, "mallory", false},
		"just in time":           {0, time.Hour, "alice", true},
		"too late":               {0, time.Hour + time.Second, "alice", false},
		"by a clock a bit ahead": {time.Minute, 0, "alice", true},
		"by a clock far ahead":   {time.Hour, 0, "alice", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sealing, err := processSealing()
			if err != nil {
				t.Fatal(err)
			}
			var sealed string
			synctest.Test(t, func(t *testing.T) { // the clocks of all bubbles start at the same time
				time.Sleep(tt.ahead)
				var err error
				if sealed, err = sealing.Seal(t.Context(), "text", "alice"); err != nil {
					t.Fatal(err)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(tt.wait)
				text, err := sealing.Unseal(t.Context(), sealed, tt.binding, time.Hour)
				if opens := err == nil && text == "text"; opens != tt.opens {
					t.Errorf("%q, %v", text, err)
				}
			})
		})
	}
}

// Gateways without the fhir app can unseal each other's links if they have the same seal key.
func TestSealKey(t *testing.T) {
	t.Setenv("SEAL_KEY", sealKey)
	ours, err := sealingWith(nil, "{env.SEAL_KEY}")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := ours.Seal(t.Context(), "text", "alice")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		keys  []string
		opens bool
	}{
		"the same key":      {[]string{sealKey}, true},
		"a new one before":  {[]string{otherSealKey, sealKey}, true},
		"another key":       {[]string{otherSealKey}, false},
		"the process's own": {nil, false},
	} {
		other, err := sealingWith(nil, tt.keys...)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := other.Unseal(t.Context(), sealed, "alice", time.Hour); (text == "text") != tt.opens {
			t.Errorf("%s: %q", name, text)
		}
	}
	for name, tt := range map[string]struct {
		app       App
		key, want string
	}{
		"too short":    {nil, "c2hvcnQ=", "seal_key: secret must be base64"},
		"with the app": {fakeApp{}, sealKey, "set store_key there"},
	} {
		if _, err := sealingWith(tt.app, tt.key); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func sealingWith(app App, keys ...string) (enforce.Sealing, error) { return newSealing(app, keys) }

// fakeApp is a fhir app for tests that only require that there is one.
type fakeApp struct{ App }

// Seal keys of several gateways.
var (
	sealKey      = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), 32))
	otherSealKey = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("b"), 32))
)

// bindingTo returns the binding of a token issued for a person with the given scope.
func bindingTo(subject, scope string) string {
	return linkBinding(&guard.Token{Issuer: "https://issuer.example", Subject: subject, ClientID: "app", Scope: scope})
}

// A client that exceeds its limit loses its oldest state, regardless of the scopes of its tokens. Other clients lose no states.
func TestPageStates(t *testing.T) {
	t.Parallel()
	states := newStatesIn(store.NewMemory(0, 0), stateLimits{statesPerClient: 3, bytesPerClient: 100, totalBytes: 150})
	put := func(subject, key string, size int) error {
		return states.PutState(t.Context(), bindingTo(subject, "patient/*.rs "+key), key, make([]byte, size), time.Hour)
	}
	retained := func(keys ...string) string {
		var all []string
		for _, key := range keys {
			if _, err := states.GetState(t.Context(), key); err == nil {
				all = append(all, key)
			} else if !errors.Is(err, enforce.ErrNoPageState) {
				t.Errorf("%s: %v", key, err)
			}
		}
		return strings.Join(all, " ")
	}
	for i, size := range []int{10, 10, 10, 10} {
		if err := put("alice", strconv.Itoa(i), size); err != nil {
			t.Fatal(err)
		}
	}
	if got := retained("0", "1", "2", "3"); got != "1 2 3" {
		t.Errorf("beyond the number of states, %q are left", got)
	}
	if err := put("alice", "large", 85); err != nil {
		t.Fatal(err)
	}
	if got := retained("1", "2", "3", "large"); got != "3 large" {
		t.Errorf("beyond the size, %q are left", got)
	}
	if err := put("bob", "small", 50); err != nil {
		t.Error(err)
	}
	if got := retained("3", "large", "small"); got != "3 large small" {
		t.Errorf("within the size for all, %q are left", got)
	}
	if err := put("carol", "other", 60); err != nil {
		t.Error(err)
	}
	if got := retained("3", "large", "small", "other"); got != "small other" {
		t.Errorf("beyond the size for all, %q are left: the client with the most bytes must lose its states", got)
	}
	if states.bytes != 110 || len(states.sizes) != 2 || states.sizes[bindingClient(bindingTo("bob", ""))] != 50 {
		t.Errorf("%d bytes, %v", states.bytes, states.sizes)
	}
}

func TestPageStatesExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		states := newStatesIn(store.NewMemory(0, 0), stateLimits{statesPerClient: 10, bytesPerClient: 100, totalBytes: 100})
		for range 3 {
			if err := states.PutState(t.Context(), bindingTo("alice", ""), "key", make([]byte, 90), time.Hour); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour + time.Second)
			if _, err := states.GetState(t.Context(), "key"); !errors.Is(err, enforce.ErrNoPageState) {
				t.Error(err)
			}
			if states.sweep(); len(states.clients) > 0 || states.bytes != 0 {
				t.Errorf("%d bytes of %d clients are left", states.bytes, len(states.clients))
			}
		}
	})
}

// If the store is full, PutState returns an error and does not change the counters.
func TestPageStatesFullStore(t *testing.T) {
	t.Parallel()
	full := store.NewMemory(1, 0)
	states := newStatesIn(full, defaultStateLimits)
	if err := full.Put(t.Context(), "code:1", nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := states.PutState(t.Context(), bindingTo("alice", ""), "key", make([]byte, 9), time.Hour); !errors.Is(err, store.ErrFull) || states.bytes != 0 {
		t.Errorf("%v, %d bytes", err, states.bytes)
	}
}

// pagedServer is a FHIR server with search results that always contain a next link.
var pagedServer = caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
	offset := r.URL.Query().Get("_getpagesoffset") + "1"
	w.Header().Set("Content-Type", "application/fhir+json")
	_, err := fmt.Fprintf(w, `{"resourceType":"Bundle","type":"searchset","link":[{"relation":"self","url":"http://hapi/fhir/R4/Observation"},`+
		`{"relation":"next","url":"http://hapi/fhir/R4/Observation?_getpagesoffset=%[1]s"}],"entry":[{"fullUrl":"http://hapi/fhir/R4/Observation/o%[1]s",`+
		`"resource":{"resourceType":"Observation","id":"o%[1]s","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/p"}},"search":{"mode":"match"}}]}`, offset)
	return err
})

// A page link is valid only for tokens with the same issuer, person, client, patient and scopes, including refreshed tokens. It
// is not valid for other tokens, even if they permit the same search.
func TestPageLinkIsBoundToToken(t *testing.T) {
	t.Parallel()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	e, err := newEnforcement(ctx, &Enforcement{}, nil, apiLocation{path: "/fhir/R4", url: "https://fhir.example.org/fhir/R4"}, nil,
		func(*http.Request, enforce.Bearer, enforce.Decision) {})
	if err != nil {
		t.Fatal(err)
	}
	get := func(t *testing.T, target string, token guard.Token) (status int, next string) {
		t.Helper()
		w := httptest.NewRecorder()
		if err := e.serve(w, httptest.NewRequest(http.MethodGet, target, nil), pagedServer, &token); err != nil {
			refused, _ := errors.AsType[*guard.Error](err)
			if refused == nil {
				t.Fatal(err)
			}
			return refused.Status, ""
		}
		var bundle struct {
			Link []struct{ Relation, URL string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &bundle); err != nil {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		for _, l := range bundle.Link {
			if u, err := url.Parse(l.URL); err == nil && l.Relation == "next" {
				next = u.RequestURI()
			}
		}
		return w.Code, next
	}
	for _, kind := range []string{"patient", "user", "system"} {
		holder := guard.Token{
			Issuer: "https://fhir.example.org", Subject: "alice", ClientID: "app", ID: "1", Patient: "p", FHIRUser: "Practitioner/alice",
			Scope: kind + "/Observation.rs", Expires: time.Now().Add(time.Minute),
		}
		for name, tt := range map[string]struct {
			change func(*guard.Token)
			opens  bool
		}{
			"the same token":      {func(*guard.Token) {}, true},
			"a refreshed token":   {func(t *guard.Token) { t.ID, t.Expires = "2", t.Expires.Add(time.Hour) }, true},
			"another issuer":      {func(t *guard.Token) { t.Issuer = "https://login.example" }, false},
			"another person":      {func(t *guard.Token) { t.Subject = "bob" }, false},
			"another app":         {func(t *guard.Token) { t.ClientID = "other" }, false},
			"another patient":     {func(t *guard.Token) { t.Patient = "q" }, false},
			"another fhirUser":    {func(t *guard.Token) { t.FHIRUser = "Practitioner/bob" }, false},
			"more scopes":         {func(t *guard.Token) { t.Scope += " " + kind + "/Condition.rs" }, false},
			"wider scopes":        {func(t *guard.Token) { t.Scope = kind + "/*.rs" }, false},
			"another constraint":  {func(t *guard.Token) { t.Scope = kind + "/Observation.rs?status=final" }, false},
			"names run together":  {func(t *guard.Token) { t.Subject, t.ClientID = "aliceapp", "" }, false},
			"the other way round": {func(t *guard.Token) { t.Subject, t.ClientID = t.ClientID, t.Subject }, false},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				status, next := get(t, "/fhir/R4/Observation?_count=1", holder)
				if status != http.StatusOK || next == "" {
					t.Fatalf("search: %d, next link %q", status, next)
				}
				other := holder
				tt.change(&other)
				want := http.StatusNotFound
				if tt.opens {
					want = http.StatusOK
				}
				if status, _ := get(t, next, other); status != want {
					t.Errorf("%d, want %d", status, want)
				}
			})
		}
	}
}
