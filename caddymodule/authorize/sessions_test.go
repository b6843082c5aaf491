package authorize_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

func sessions(t *testing.T, s *authorize.Server, user string) []authorize.SessionInfo {
	t.Helper()
	list, err := s.Sessions(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestSessionsAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		b := newBrowser(t, s)
		id := b.claims(b.tokens(nil).IDToken)
		began := time.Now()
		time.Sleep(time.Minute)
		b.authorize(request(url.Values{"client_id": {"confidential"}, "redirect_uri": {callback + "?tenant=1"}}))
		b.signIn(request(url.Values{"prompt": {"login"}}), "alice", "right")
		newBrowser(t, s).signIn(request(nil), "bob", "other")
		list := sessions(t, s, "alice")
		if len(list) != 1 || len(sessions(t, s, "")) != 2 || len(sessions(t, s, "nobody")) != 0 {
			t.Fatalf("%d of alice, %d of all", len(list), len(sessions(t, s, "")))
		}
		got := list[0]
		slices.Sort(got.Clients)
		if got.ID != id["sid"] || got.User != "alice" || !got.Since.Equal(began) || !got.SignedInAt.Equal(began.Add(time.Minute)) ||
			!slices.Equal(got.Clients, []string{"app", "confidential"}) || got.Address != "192.0.2.1" {
			t.Errorf("%+v", got)
		}
	})
}

// A session that is renewed knows its clients for as long as it lasts.
func TestSessionKeepsClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		b := newBrowser(t, s)
		b.answer(request(nil))
		time.Sleep(7 * time.Hour)
		b.signIn(request(url.Values{"prompt": {"login"}, "client_id": {"strict"}, "code_challenge_method": {"S256"}, "code_challenge": {s256(verifier)}}), "alice", "right")
		time.Sleep(7 * time.Hour)
		if list := sessions(t, s, "alice"); len(list) != 1 || len(list[0].Clients) != 2 {
			t.Errorf("%+v", list)
		}
	})
}

func TestUserAgentIsCut(t *testing.T) {
	s := newServer(t, nil)
	b := newBrowser(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("User-Agent", strings.Repeat("a", 10_000))
		s.ServeHTTP(w, r)
	}))
	b.answer(request(nil))
	if got := sessions(t, s, "alice")[0].UserAgent; len(got) != 200 {
		t.Errorf("%d bytes", len(got))
	}
}

// Sessions are ended from here, one or all of a person's.
func TestSessionsAreEnded(t *testing.T) {
	s := newServer(t, nil)
	var browsers []*browser
	for range 3 {
		b := newBrowser(t, s)
		b.answer(request(nil))
		browsers = append(browsers, b)
	}
	bob := newBrowser(t, s)
	bob.signIn(request(nil), "bob", "other")
	sid, _ := browsers[0].claims(browsers[0].moreTokens(t).IDToken)["sid"].(string)
	if _, err := s.EndSession(t.Context(), sid); err != nil || browsers[0].signedIn() || !browsers[1].signedIn() {
		t.Errorf("one ended: %v", err)
	}
	if _, err := s.EndSession(t.Context(), sid); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := s.EndSessions(t.Context(), "alice"); err != nil || browsers[1].signedIn() || browsers[2].signedIn() || !bob.signedIn() {
		t.Errorf("all ended: %v", err)
	}
}

// moreTokens are tokens of the session that is there already.
func (b *browser) moreTokens(t *testing.T) tokenAnswer {
	t.Helper()
	code := location(t, b.authorize(request(nil))).Query().Get("code")
	return decode[tokenAnswer](t, b.post("/oauth2/token", codeForm(code, nil)))
}

// Sessions that their user's configuration ended are not shown as alive.
func TestEndedSessionsAreNotListed(t *testing.T) {
	for name, change := range map[string]func(*authorize.Config){
		"disabled":     func(c *authorize.Config) { c.Users[0].Disabled = true },
		"removed":      func(c *authorize.Config) { c.Users = c.Users[1:] },
		"new password": func(c *authorize.Config) { c.Users[0].PasswordHash = "new" },
	} {
		store := authorize.NewMemoryStore(0, 0)
		newBrowser(t, newServer(t, func(c *authorize.Config) { c.Store = store })).answer(request(nil))
		after := newServer(t, func(c *authorize.Config) { c.Store = store; change(c) })
		if list := sessions(t, after, ""); len(list) != 0 {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

// Who signs in again goes on under the same sid and another secret; who signs in
// in another's place under another sid.
func TestSignInAgain(t *testing.T) {
	b := newBrowser(t, newServer(t, func(c *authorize.Config) { c.Users[1].PasswordHash = c.Users[0].PasswordHash }))
	first := b.claims(b.tokens(nil).IDToken)["sid"]
	old := b.cookies["__Host-fhir-session"]
	again := b.claims(b.tokens(url.Values{"prompt": {"login"}}).IDToken)["sid"]
	if first == nil || again != first || b.cookies["__Host-fhir-session"] == old {
		t.Errorf("sid %v, then %v", first, again)
	}
	thief := newBrowser(t, b.server)
	thief.cookies["__Host-fhir-session"] = old
	if thief.signedIn() {
		t.Error("the old cookie still signs in")
	}
	b.signIn(request(url.Values{"prompt": {"login"}}), "bob", "right")
	if sid := b.claims(b.moreTokens(t).IDToken)["sid"]; sid == first {
		t.Error("bob has alice's sid")
	}
}

// The sid is public, and signs nobody in; nor does a cookie in part.
func TestSessionCookieIsWhole(t *testing.T) {
	b := newBrowser(t, newServer(t, nil))
	b.answer(request(nil))
	sid, secret, _ := strings.Cut(b.cookies["__Host-fhir-session"], ".")
	if len(sid) < 43 || len(secret) < 43 {
		t.Errorf("%d and %d characters", len(sid), len(secret))
	}
	for _, cookie := range []string{sid, sid + ".", sid + "." + secret[:42], sid + "." + secret + "A", "." + secret, secret, "." + sid, sid + "." + sid, ""} {
		other := newBrowser(t, b.server)
		other.cookies["__Host-fhir-session"] = cookie
		if other.signedIn() {
			t.Errorf("signed in by %q", cookie)
		}
	}
}
