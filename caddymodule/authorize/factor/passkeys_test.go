package factor_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

const sid = "a-session"

func newAuthenticator() *providertest.Authenticator {
	return &providertest.Authenticator{Origin: issuer, RPID: "fhir.example.org", SignCount: 1}
}

// enrolPasskey enrolls a passkey of alice and returns the recovery codes.
func (w *factorFixture) enrolPasskey(t *testing.T, a *providertest.Authenticator) []string {
	t.Helper()
	recovery, err := w.tryEnrol(t, a, w.alice)
	if err != nil {
		t.Fatal(err)
	}
	return recovery
}

func (w *factorFixture) tryEnrol(t *testing.T, a *providertest.Authenticator, user *people.User) ([]string, error) {
	t.Helper()
	c, err := w.Passkeys.BeginEnrollment(httptest.NewRecorder(), w.request(t), user, sid)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := a.Create(c.Options)
	if err != nil {
		t.Fatal(err)
	}
	return w.Passkeys.FinishEnrollment(w.request(t), user, factor.SessionContext{SID: sid, IsMultiFactor: true}, c.SealedChallenge, answer, "My <phone>")
}

func (w *factorFixture) beginSignIn(t *testing.T) *factor.Ceremony {
	t.Helper()
	c, err := w.Passkeys.BeginSignIn(httptest.NewRecorder(), w.request(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func passkeyResponse(t *testing.T, a *providertest.Authenticator, c *factor.Ceremony) string {
	t.Helper()
	text, err := a.Get(c.Options)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPasskeySignIn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		authenticator providertest.Authenticator
		amr           []string
	}{
		"in hardware":                 {providertest.Authenticator{SignCount: 1}, []string{"hwk", "user", "mfa"}},
		"synced":                      {providertest.Authenticator{BackupEligible: true}, []string{"swk", "user", "mfa"}},
		"that does not count its use": {providertest.Authenticator{}, []string{"hwk", "user", "mfa"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFactorFixture(t)
			a := tt.authenticator
			a.Origin, a.RPID = issuer, "fhir.example.org"
			if recovery := w.enrolPasskey(t, &a); len(recovery) != 10 {
				t.Errorf("recovery codes %q", recovery)
			}
			for range 2 {
				c := w.beginSignIn(t)
				got, err := w.Passkeys.VerifySignIn(w.request(t), c.SealedChallenge, passkeyResponse(t, &a, c))
				if err != nil || got.User != w.alice || !slices.Equal(got.AMR, tt.amr) {
					t.Errorf("%+v, %v", got, err)
				}
			}
			if p := w.loadFactors(t, w.alice).Passkeys[0]; p.LastUsedAt.IsZero() || p.Name != "My <phone>" {
				t.Errorf("stored %+v", p)
			}
		})
	}
}

func TestPasskeyAsSecondFactor(t *testing.T) {
	t.Parallel()
	w := newFactorFixture(t)
	a := newAuthenticator()
	a.SkipsVerification = true
	w.enrolPasskey(t, a)
	c, err := w.Passkeys.BeginSecondFactor(httptest.NewRecorder(), w.request(t), w.alice)
	if err != nil {
		t.Fatal(err)
	}
	text := passkeyResponse(t, a, c)
	if _, err := w.Passkeys.VerifySecondFactor(w.request(t), w.Directory.User("bob"), c.SealedChallenge, text); !errors.Is(err, factor.ErrPasskeyRejected) {
		t.Errorf("for another person: %v", err)
	}
	got, err := w.Passkeys.VerifySecondFactor(w.request(t), w.alice, c.SealedChallenge, text)
	if err != nil || !slices.Equal(got.AMR, []string{"hwk", "user"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// withChangedMember returns a passkey response in which one member is edited.
func withChangedMember(t *testing.T, text, member string, edit func(string) string) string {
	t.Helper()
	var a struct {
		ID       string            `json:"id"`
		RawID    string            `json:"rawId"`
		Type     string            `json:"type"`
		Response map[string]string `json:"response"`
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	a.Response[member] = edit(a.Response[member])
	changed, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return string(changed)
}

// signIn signs in with a passkey and returns the error, if any.
func (w *factorFixture) signIn(t *testing.T, a *providertest.Authenticator) error {
	t.Helper()
	c := w.beginSignIn(t)
	_, err := w.Passkeys.VerifySignIn(w.request(t), c.SealedChallenge, passkeyResponse(t, a, c))
	return err
}

func TestPasskeyRefused(t *testing.T) {
	t.Parallel()
	type attack = func(*testing.T, *factorFixture, *providertest.Authenticator) error
	with := func(change func(*factorFixture, *providertest.Authenticator)) attack {
		return func(t *testing.T, w *factorFixture, a *providertest.Authenticator) error {
			change(w, a)
			return w.signIn(t, a)
		}
	}
	for name, attack := range map[string]attack{
		"the answer a second time": func(t *testing.T, w *factorFixture, a *providertest.Authenticator) error {
			c := w.beginSignIn(t)
			text := passkeyResponse(t, a, c)
			if _, err := w.Passkeys.VerifySignIn(w.request(t), c.SealedChallenge, text); err != nil {
				t.Fatal(err)
			}
			a.SignCount = 100
			_, err := w.Passkeys.VerifySignIn(w.request(t), c.SealedChallenge, text)
			return err
		},
		"the answer to another challenge": func(t *testing.T, w *factorFixture, a *providertest.Authenticator) error {
			_, err := w.Passkeys.VerifySignIn(w.request(t), w.beginSignIn(t).SealedChallenge, passkeyResponse(t, a, w.beginSignIn(t)))
			return err
		},
		"another browser's challenge": func(t *testing.T, w *factorFixture, a *providertest.Authenticator) error {
			c := w.beginSignIn(t)
			w.browser = &http.Cookie{Name: browser.IDPrefix + "b", Value: "another browser"}
			_, err := w.Passkeys.VerifySignIn(w.request(t), c.SealedChallenge, passkeyResponse(t, a, c))
			return err
		},
		"a challenge of another purpose": func(t *testing.T, w *factorFixture, a *providertest.Authenticator) error {
			c, err := w.Passkeys.BeginSecondFactor(httptest.NewRecorder(), w.request(t), w.alice)
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.Passkeys.VerifySignIn(w.request(t), c.SealedChallenge, passkeyResponse(t, a, c))
			return err
		},
		"a page of another origin": with(func(_ *factorFixture, a *providertest.Authenticator) {
			a.Origin = "https://fhir.example.org.evil.example"
		}),
		"a passkey of another site":               with(func(_ *factorFixture, a *providertest.Authenticator) { a.RPID = "evil.example" }),
		"passkey only, without user verification": with(func(_ *factorFixture, a *providertest.Authenticator) { a.SkipsVerification = true }),
		"unknown user handle":                     with(func(_ *factorFixture, a *providertest.Authenticator) { a.UserHandle = []byte("nobody's") }),
		"no handle":                               with(func(_ *factorFixture, a *providertest.Authenticator) { a.UserHandle = nil }),
		"a disabled user":                         with(func(w *factorFixture, _ *providertest.Authenticator) { w.alice.Disabled = true }),
		"a copy of it": func(t *testing.T, w *factorFixture, a *providertest.Authenticator) error {
			thief := *a
			if err := w.signIn(t, a); err != nil {
				t.Fatal(err)
			}
			err := w.signIn(t, &thief)
			if !errors.Is(err, factor.ErrClonedPasskey) {
				t.Errorf("the error is %v", err)
			}
			return err
		},
		"one that was removed": func(t *testing.T, w *factorFixture, a *providertest.Authenticator) error {
			if err := w.Passkeys.Remove(t.Context(), w.alice, proved, w.loadFactors(t, w.alice).Passkeys[0].Credential.ID); err != nil {
				t.Fatal(err)
			}
			return w.signIn(t, a)
		},
		"another signature": func(t *testing.T, w *factorFixture, a *providertest.Authenticator) error {
			c := w.beginSignIn(t)
			text := withChangedMember(t, passkeyResponse(t, a, c), "signature", func(s string) string { return s[:20] + "AAAA" + s[24:] })
			_, err := w.Passkeys.VerifySignIn(w.request(t), c.SealedChallenge, text)
			return err
		},
		"no JSON": func(t *testing.T, w *factorFixture, a *providertest.Authenticator) error {
			_, err := w.Passkeys.VerifySignIn(w.request(t), w.beginSignIn(t).SealedChallenge, "{")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a := newFactorFixture(t), newAuthenticator()
			w.enrolPasskey(t, a)
			if err := attack(t, w, a); !errors.Is(err, factor.ErrPasskeyRejected) {
				t.Errorf("accepted, or refused as %v", err)
			}
		})
	}
}

func TestPasskeyEnrolmentRefused(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, w *factorFixture, sid string) (*factor.Ceremony, string) {
		t.Helper()
		c, err := w.Passkeys.BeginEnrollment(httptest.NewRecorder(), w.request(t), w.alice, sid)
		if err != nil {
			t.Fatal(err)
		}
		text, err := newAuthenticator().Create(c.Options)
		if err != nil {
			t.Fatal(err)
		}
		return c, text
	}
	for name, tt := range map[string]struct {
		begun       string // sid of the session that requested the challenge
		other       bool   // whether another user submits the response
		again, late bool   // again: the response is sent twice; late: it is sent after the challenge has expired
	}{
		"in another session":   {begun: "another"},
		"for another person":   {begun: sid, other: true},
		"a second time":        {begun: sid, again: true},
		"to another challenge": {begun: sid, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFactorFixture(t)
			c, text := begin(t, w, tt.begun)
			if tt.late {
				c, _ = begin(t, w, tt.begun)
			}
			person := w.alice
			if tt.other {
				person = w.carol
			}
			enrol := func() error {
				_, err := w.Passkeys.FinishEnrollment(w.request(t), person, factor.SessionContext{SID: sid, IsMultiFactor: true}, c.SealedChallenge, text, "")
				return err
			}
			if tt.again {
				if err := enrol(); err != nil {
					t.Fatal(err)
				}
			}
			if err := enrol(); !errors.Is(err, factor.ErrPasskeyRejected) {
				t.Errorf("accepted, or refused as %v", err)
			}
		})
	}
}

func TestPasskeysAreBounded(t *testing.T) {
	t.Parallel()
	w := newFactorFixture(t)
	for i := range 20 {
		if _, err := w.tryEnrol(t, newAuthenticator(), w.alice); err != nil {
			t.Fatalf("passkey %d: %v", i, err)
		}
	}
	if _, err := w.tryEnrol(t, newAuthenticator(), w.alice); !errors.Is(err, factor.ErrTooManyPasskeys) {
		t.Errorf("one more: %v", err)
	}
}

func TestPasskeyName(t *testing.T) {
	t.Parallel()
	w := newFactorFixture(t)
	w.enrolPasskey(t, newAuthenticator())
	id := w.loadFactors(t, w.alice).Passkeys[0].Credential.ID
	for typed, want := range map[string]string{
		"  my\n phone ":          "my phone",
		"":                       "Passkey",
		strings.Repeat("ü", 100): strings.Repeat("ü", 60),
		"\xff":                   "Passkey",
	} {
		if err := w.Passkeys.Rename(t.Context(), w.alice, proved, id, typed); err != nil {
			t.Fatal(err)
		}
		if got := w.loadFactors(t, w.alice).Passkeys[0].Name; got != want {
			t.Errorf("%q becomes %q", typed, got)
		}
	}
	if err := w.Passkeys.Rename(t.Context(), w.carol, proved, id, "mine"); !errors.Is(err, factor.ErrUnknownFactor) {
		t.Errorf("another user's passkey: %v", err)
	}
}

// If the same response is sent in concurrent sign-ins, only one of them succeeds.
func TestPasskeyRace(t *testing.T) {
	t.Parallel()
	w, a := newFactorFixture(t), newAuthenticator()
	w.enrolPasskey(t, a)
	c := w.beginSignIn(t)
	text := passkeyResponse(t, a, c)
	if n := atOnce(func(int) error {
		_, err := w.Passkeys.VerifySignIn(w.request(t), c.SealedChallenge, text)
		return err
	}); n != 1 {
		t.Errorf("%d signed in", n)
	}
}

// An issuer with an IP address as host does not support passkeys.
func TestPasskeysNeedName(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{"fhir.example.org": true, "localhost:8443": true, "192.0.2.1": false, "[2001:db8::1]:8443": false} {
		if got := factor.NewPasskeys(fmt.Sprintf("https://%s", host), nil, nil, nil, nil) != nil; got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
}

// If the store fails, the challenge can be answered again.
func TestPasskeyFaults(t *testing.T) {
	t.Parallel()
	w, a := newFactorFixture(t), newAuthenticator()
	for _, fault := range [][2]string{{"Add", "passkey-handle:"}, {"Add", "factors:"}} {
		c, err := w.Passkeys.BeginEnrollment(httptest.NewRecorder(), w.request(t), w.alice, sid)
		if err != nil {
			t.Fatal(err)
		}
		text, err := a.Create(c.Options)
		if err != nil {
			t.Fatal(err)
		}
		repair := w.failing(fault[0], fault[1])
		if _, err := w.Passkeys.FinishEnrollment(w.request(t), w.alice, factor.SessionContext{SID: sid, IsMultiFactor: true}, c.SealedChallenge, text, ""); !errors.Is(err, errDown) {
			t.Errorf("%s fails: %v", fault, err)
		}
		if repair(); w.loadFactors(t, w.alice).HasAny() {
			t.Errorf("%s fails, and it is enrolled", fault)
		}
		if fault[1] == "factors:" {
			if _, err := w.Passkeys.FinishEnrollment(w.request(t), w.alice, factor.SessionContext{SID: sid, IsMultiFactor: true}, c.SealedChallenge, text, ""); err != nil {
				t.Errorf("again: %v", err)
			}
		}
	}
	c := w.beginSignIn(t)
	text := passkeyResponse(t, a, c)
	repair := w.failing("Swap", "factors:")
	if _, err := w.Passkeys.VerifySignIn(w.request(t), c.SealedChallenge, text); !errors.Is(err, errDown) {
		t.Errorf("the counter is not stored: %v", err)
	}
	repair()
	if _, err := w.Passkeys.VerifySignIn(w.request(t), c.SealedChallenge, text); err != nil {
		t.Errorf("again: %v", err)
	}
}

// withRSA returns an edit that replaces the key with an RSA key. In the modulus, all bits are one except those in flips.
func withRSA(flips []byte, exponent uint32) func(object []byte) []byte {
	return func(object []byte) []byte {
		modulus := bytes.Clone(flips)
		for i := range modulus {
			modulus[i] ^= 0xff
		}
		key := slices.Concat([]byte("\xa4\x01\x03\x03\x39\x01\x00\x20\x59"), binary.BigEndian.AppendUint16(nil, uint16(len(modulus))), modulus,
			[]byte{0x21, 0x43}, binary.BigEndian.AppendUint32(nil, exponent)[1:])
		head, data, _ := bytes.Cut(object, []byte("authData"))
		data, _, _ = bytes.Cut(data[3:], []byte("\xa5\x01\x02\x03\x26")) // the first three bytes encode the length of authData
		size := binary.BigEndian.AppendUint16([]byte{0x59}, uint16(len(data)+len(key)))
		return slices.Concat(head, []byte("authData"), size, data, key)
	}
}

// At enrollment, unusable credentials and responses that browsers never send are rejected.
func TestUnusablePasskeysAreNotEnrolled(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		origin string
		edit   func(object []byte) []byte // edits the attestation object
		usable bool
	}{
		"an origin in capitals": {"HTTPS://FHIR.EXAMPLE.ORG", nil, false},
		"key that is not on the curve": {"", func(object []byte) []byte {
			return append(object[:len(object)-32], make([]byte, 32)...)
		}, false},
		"a key of another kind": {"", func(object []byte) []byte {
			return bytes.Replace(object, []byte("\xa5\x01\x02\x03\x26"), []byte("\xa5\x01\x09\x03\x26"), 1)
		}, false},
		"a short RSA key":                 {"", withRSA(make([]byte, 128), 1<<16|1), false},
		"an RSA key with an even modulus": {"", withRSA(slices.Concat(make([]byte, 255), []byte{1}), 1<<16|1), false},
		"an RSA key with the exponent 1":  {"", withRSA(make([]byte, 256), 1), false},
		"an RSA key":                      {"", withRSA(make([]byte, 256), 1<<16|1), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a := newFactorFixture(t), newAuthenticator()
			a.Origin = cmp.Or(tt.origin, a.Origin)
			c, err := w.Passkeys.BeginEnrollment(httptest.NewRecorder(), w.request(t), w.alice, sid)
			if err != nil {
				t.Fatal(err)
			}
			text, err := a.Create(c.Options)
			if err != nil {
				t.Fatal(err)
			}
			if tt.edit != nil {
				text = withChangedMember(t, text, "attestationObject", func(member string) string {
					object, err := base64.RawURLEncoding.DecodeString(member)
					if err != nil {
						t.Fatal(err)
					}
					return base64.RawURLEncoding.EncodeToString(tt.edit(object))
				})
			}
			_, err = w.Passkeys.FinishEnrollment(w.request(t), w.alice, factor.SessionContext{SID: sid, IsMultiFactor: true}, c.SealedChallenge, text, "")
			if errors.Is(err, factor.ErrPasskeyRejected) == tt.usable || len(w.loadFactors(t, w.alice).Passkeys) == 1 != tt.usable {
				t.Errorf("%v, held %d", err, len(w.loadFactors(t, w.alice).Passkeys))
			}
		})
	}
}
