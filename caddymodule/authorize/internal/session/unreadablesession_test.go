package session_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const sessionCookie = "__Host-fhir-session"

// damagedSession is a session of alice whose record became unreadable.
type damagedSession struct {
	*servertest.Browser
	server *authorize.Server
	party  *servertest.Party
	sid    string
	tokens servertest.TokenResponse
	ends   []audit.Event // of the session
}

func newDamagedSession(t *testing.T, record string) *damagedSession {
	t.Helper()
	d := &damagedSession{party: servertest.NewParty(t)}
	durable := store.NewMemory(0, 0)
	d.server = servertest.New(t, func(c *authorize.Config) {
		servertest.Refreshing(c)
		c.Durable = durable
		c.Clients[0].BackchannelLogoutURI = d.party.URI
		c.Audit = func(_ context.Context, e audit.Event) {
			if e.Kind == audit.SignOut && e.Err == nil && e.Reason != "the client was told" {
				d.ends = append(d.ends, e)
			}
		}
	})
	d.Browser = servertest.NewBrowser(t, d.server)
	d.tokens = d.Redeem(d.Answer(online()))
	d.sid = d.Claims(d.tokens.IDToken)["sid"].(string)
	if err := durable.Put(t.Context(), "session:"+d.sid, []byte(record), time.Hour); err != nil {
		t.Fatal(err)
	}
	return d
}

// ended reports whether what the app got is void.
func (d *damagedSession) ended() bool {
	return !d.TokenWorks(d.tokens.AccessToken) && d.Refresh(d.tokens.Refresh, nil).AccessToken == ""
}

// agree gives the answer of the page that asks whether to sign out.
func (d *damagedSession) agree(t *testing.T, r *http.Response) {
	d.Post("/oauth2/logout", url.Values{"request": {servertest.Field(t, servertest.Body(t, r), "request")}})
}

// Whoever may end a session can do so when its record is malformed, and so far as it is known
// whose it was, it ends as any other. The audit trail says that the record could not be read.
func TestUnreadableSessionEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end    func(*testing.T, *damagedSession)
		user   string // as far as it is known
		reason string
	}{
		"in its browser, when asked": {func(t *testing.T, d *damagedSession) {
			d.agree(t, d.Get("/oauth2/logout"))
		}, "", "signed out in its browser"},
		"in its browser, with its hint": {func(_ *testing.T, d *damagedSession) {
			d.Get("/oauth2/logout?id_token_hint=" + d.tokens.IDToken)
		}, "alice", "signed out in its browser"},
		"by its hint alone": {func(t *testing.T, d *damagedSession) {
			servertest.NewBrowser(t, d.server).Get("/oauth2/logout?id_token_hint=" + d.tokens.IDToken)
		}, "alice", "signed out by an ID token of it, from elsewhere"},
		"by its hint and a cookie that proves nothing": {func(_ *testing.T, d *damagedSession) {
			d.Cookies[sessionCookie] = d.sid + ".x"
			d.Get("/oauth2/logout?id_token_hint=" + d.tokens.IDToken)
		}, "alice", "signed out by an ID token of it, from elsewhere"},
		"by signing in again": {func(_ *testing.T, d *damagedSession) {
			d.Answer(servertest.Request(nil))
		}, "", "somebody signed in in its place in the same browser"},
		"with all of its person, by an operator": {func(t *testing.T, d *damagedSession) {
			if n, err := d.server.EndSessions(t.Context(), "alice"); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}, "alice", "ended by an administrator"},
		"by an operator": {func(t *testing.T, d *damagedSession) {
			if n, err := d.server.EndSession(t.Context(), d.sid); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}, "", "ended by an administrator"},
	} {
		for _, record := range []string{"", "{", `{"v":1,"user":"bob","secret":7}`} {
			t.Run(name+", of "+record, func(t *testing.T) {
				t.Parallel()
				d := newDamagedSession(t, record)
				if d.ended() {
					t.Fatal("it has ended already")
				}
				tt.end(t, d)
				if !d.ended() {
					t.Error("what the app got is still good")
				}
				if len(d.ends) != 1 || d.ends[0].User != tt.user || d.ends[0].Reason != tt.reason+"; the record of the session cannot be read" {
					t.Errorf("events %+v", d.ends)
				}
				if told := d.Claims(<-d.party.Tokens); told["sid"] != d.sid || told["sub"] != nil && told["sub"] != tt.user {
					t.Errorf("the app was told %v", told)
				}
			})
		}
	}
}

// The sid is public. Neither it, nor a cookie made of it, nor a link on another site ends a session
// because its record is malformed. Its browser is signed out of it all the same.
func TestUnreadableSessionEndsForNobodyElse(t *testing.T) {
	t.Parallel()
	for name, cookie := range map[string]func(*damagedSession) string{
		"the sid alone":            func(d *damagedSession) string { return d.sid },
		"the sid twice":            func(d *damagedSession) string { return d.sid + "." + d.sid + ".x" },
		"without its root":         func(d *damagedSession) string { return d.sid + strings.Repeat("."+strings.Repeat("A", 43), 2) },
		"of another session":       func(d *damagedSession) string { return d.sid + d.another() },
		"of an earlier version":    func(d *damagedSession) string { return d.sid + "." + strings.Repeat("A", 43) },
		"its own, by a mere link":  func(d *damagedSession) string { return d.Cookies[sessionCookie] },
		"its own, by another hint": func(d *damagedSession) string { return d.Cookies[sessionCookie] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDamagedSession(t, "{")
			d.Cookies[sessionCookie] = cookie(d)
			target := "/oauth2/logout"
			if strings.HasSuffix(name, "hint") {
				target += "?id_token_hint=" + servertest.NewBrowser(t, d.server).Tokens(nil).IDToken
			}
			if r := d.Get(target); r.StatusCode != http.StatusOK {
				t.Errorf("status %d", r.StatusCode)
			}
			if d.ended() || len(d.ends) > 0 {
				t.Errorf("ended: %+v", d.ends)
			}
			if d.SignedIn() {
				t.Error("signed in by a record that nobody can read")
			}
		})
	}
}

// another is the cookie of another session, without its sid.
func (d *damagedSession) another() string {
	b := servertest.NewBrowser(d.T, d.server)
	b.Answer(servertest.Request(nil))
	_, proof, _ := strings.Cut(b.Cookies[sessionCookie], ".")
	return "." + proof
}

// One record that cannot be read keeps nobody else from ending their sessions, and no person from
// seeing theirs.
func TestUnreadableSessionIsInNobodysWay(t *testing.T) {
	t.Parallel()
	d := newDamagedSession(t, "{")
	bob := servertest.NewBrowser(t, d.server)
	bob.SignIn(servertest.Request(nil), "bob", "other")
	if n, err := d.server.EndSessions(t.Context(), "bob"); n != 1 || err != nil || bob.SignedIn() {
		t.Errorf("bob's: %d, %v", n, err)
	}
	alice := servertest.NewBrowser(t, d.server)
	alice.Answer(servertest.Request(nil))
	if r := alice.Get("/oauth2/account"); r.StatusCode != http.StatusOK {
		t.Errorf("the account page of its person: %d", r.StatusCode)
	}
	if d.ended() {
		t.Error("it has ended")
	}
}

// What another version can read is not malformed: it is left to that one.
func TestSessionOfLaterVersionDoesNotEnd(t *testing.T) {
	t.Parallel()
	d := newDamagedSession(t, `{"v":2}`)
	if r := d.Get("/oauth2/logout?id_token_hint=" + d.tokens.IDToken); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", r.StatusCode)
	}
	if _, err := d.server.EndSession(t.Context(), d.sid); err == nil || d.ended() {
		t.Errorf("ended: %v", err)
	}
}
