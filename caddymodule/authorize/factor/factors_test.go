package factor_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

const issuer = "https://fhir.example.org"

// factorFixture contains the factors and the store of a server.
type factorFixture struct {
	*factor.Factors
	durable *storetest.InterceptedStore
	alice   *people.User
	carol   *people.User // user with an authenticator app set in the configuration
	browser *http.Cookie
}

type plainStorage struct{}

func (plainStorage) Compare(hash, password []byte) (bool, error) {
	return string(hash) == string(password), nil
}

// sharedKeys is used by all tests, because generating an RSA key is slow.
var sharedKeys = sync.OnceValue(func() *keyring.Keyring {
	return keyring.New(new(providertest.Storage), "keys.json", slog.New(slog.DiscardHandler))
})

func newFactorFixture(t *testing.T) *factorFixture {
	t.Helper()
	directory, err := people.NewDirectory([]people.User{
		{ID: "alice", PasswordHash: "right", Name: "Alice"},
		{ID: "bob", PasswordHash: "right"},
		{ID: "carol", PasswordHash: "right", TOTPSecret: totp.NewSecret()},
	}, plainStorage{}, false)
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	keys := sharedKeys()
	durable := storetest.NewInterceptedStore(nil)
	enrollments := &factor.Enrollments{DurableStore: durable, Keys: keys, Generation: directory.Generation}
	return &factorFixture{
		Factors: &factor.Factors{
			Directory: directory, Enrollments: enrollments, OTP: &people.OTP{DurableStore: durable, Logger: logger}, Logger: logger,
			Passkeys: factor.NewPasskeys(issuer, enrollments, directory, &browser.Sealer{Keys: keys}, store.NewMemory(0, 0)),
		},
		durable: durable, alice: directory.User("alice"), carol: directory.User("carol"),
		browser: &http.Cookie{Name: browser.IDPrefix + "a", Value: "a browser"},
	}
}

// request returns a request with the cookie of the fixture's browser.
func (w *factorFixture) request(t *testing.T) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.AddCookie(w.browser)
	return r
}

// code returns the code of an authenticator app for a time that is the given number of time steps from now.
func code(t *testing.T, secret string, steps int) string {
	t.Helper()
	key, err := totp.DecodeSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	return totp.Code(key, time.Now().Unix()/30+int64(steps))
}

// enrolApp enrolls an authenticator app. It uses the code of a previous time step, so that the current code remains unused.
func (w *factorFixture) enrolApp(t *testing.T) (secret string, recovery []string) {
	t.Helper()
	secret = totp.NewSecret()
	recovery, err := w.EnrollApp(t.Context(), w.alice, proved, secret, code(t, secret, -1))
	if err != nil {
		t.Fatal(err)
	}
	return secret, recovery
}

func (w *factorFixture) loadFactors(t *testing.T, user *people.User) *factor.EnrolledFactors {
	t.Helper()
	loaded, err := w.Load(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// proved is a session in which the user signed in with a second factor.
var proved = factor.SessionContext{SID: "session", IsMultiFactor: true}

func TestApp(t *testing.T) {
	t.Parallel()
	w := newFactorFixture(t)
	secret, recovery := w.enrolApp(t)
	if len(recovery) != 10 || !w.loadFactors(t, w.alice).HasApp() {
		t.Errorf("recovery codes %q, enrolled %+v", recovery, w.loadFactors(t, w.alice))
	}
	if _, err := w.UseCode(t.Context(), w.alice, code(t, secret, 0)); err != nil {
		t.Error(err)
	}
	if _, err := w.UseCode(t.Context(), w.alice, code(t, secret, 0)); !errors.Is(err, people.ErrWrongCode) {
		t.Errorf("the code a second time: %v", err)
	}
	if _, err := w.EnrollApp(t.Context(), w.alice, proved, totp.NewSecret(), "000000"); err == nil {
		t.Error("another is enrolled by a wrong code")
	}
	other := totp.NewSecret()
	if _, err := w.EnrollApp(t.Context(), w.alice, proved, other, code(t, other, 1)); !errors.Is(err, factor.ErrAlreadyEnrolled) {
		t.Errorf("another: %v", err)
	}
	if err := w.RemoveApp(t.Context(), w.alice, proved); err != nil {
		t.Fatal(err)
	}
	if loaded := w.loadFactors(t, w.alice); loaded.HasAny() || len(loaded.RecoveryCodeHashes) > 0 {
		t.Errorf("after removal %+v", loaded)
	}
}

// An authenticator app that is set in the configuration cannot be changed by the user.
func TestConfiguredApp(t *testing.T) {
	t.Parallel()
	w := newFactorFixture(t)
	if loaded := w.loadFactors(t, w.carol); !loaded.HasAny() || !loaded.HasApp() {
		t.Errorf("enrolled %+v", loaded)
	}
	secret := totp.NewSecret()
	if _, err := w.EnrollApp(t.Context(), w.carol, proved, secret, code(t, secret, 0)); !errors.Is(err, factor.ErrConfiguredApp) {
		t.Errorf("another: %v", err)
	}
	if err := w.RemoveApp(t.Context(), w.carol, proved); !errors.Is(err, factor.ErrUnknownFactor) {
		t.Errorf("removal: %v", err)
	}
	if _, err := w.UseCode(t.Context(), w.carol, code(t, w.carol.TOTPSecret, 0)); err != nil {
		t.Error(err)
	}
}

func TestRecoveryCodes(t *testing.T) {
	t.Parallel()
	w := newFactorFixture(t)
	_, recovery := w.enrolApp(t)
	typed := " " + strings.ToUpper(strings.ReplaceAll(recovery[3], "-", " "))
	release, err := w.UseCode(t.Context(), w.alice, typed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.UseCode(t.Context(), w.alice, recovery[3]); !errors.Is(err, people.ErrWrongCode) {
		t.Errorf("a second time: %v", err)
	}
	if release(t.Context()); len(w.loadFactors(t, w.alice).RecoveryCodeHashes) != 10 {
		t.Error("one-time code not released after failed sign-in")
	}
	if _, err := w.UseCode(t.Context(), w.Directory.User("bob"), recovery[4]); !errors.Is(err, people.ErrWrongCode) {
		t.Errorf("by another person: %v", err)
	}
	renewed, err := w.RenewRecoveryCodes(t.Context(), w.alice, proved)
	if err != nil || len(renewed) != 10 {
		t.Fatalf("%q, %v", renewed, err)
	}
	if _, err := w.UseCode(t.Context(), w.alice, recovery[0]); !errors.Is(err, people.ErrWrongCode) {
		t.Errorf("an earlier one: %v", err)
	}
	if _, err := w.RenewRecoveryCodes(t.Context(), w.Directory.User("bob"), proved); !errors.Is(err, factor.ErrUnknownFactor) {
		t.Errorf("without another factor: %v", err)
	}
}

// If a recovery code is used several times concurrently, or factors are enrolled concurrently, only one attempt succeeds.
func TestFactorRaces(t *testing.T) {
	t.Parallel()
	w := newFactorFixture(t)
	_, recovery := w.enrolApp(t)
	if n := atOnce(func(int) error {
		_, err := w.UseCode(t.Context(), w.alice, recovery[0])
		return err
	}); n != 1 {
		t.Errorf("a recovery code was used %d times", n)
	}
	if err := w.RemoveApp(t.Context(), w.alice, proved); err != nil {
		t.Fatal(err)
	}
	secret := totp.NewSecret()
	if n := atOnce(func(int) error {
		_, err := w.EnrollApp(t.Context(), w.alice, proved, secret, code(t, secret, 1))
		return err
	}); n != 1 {
		t.Errorf("%d enrolled at once", n)
	}
}

func atOnce(do func(int) error) (succeeded int) {
	var wait sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wait.Go(func() { errs[i] = do(i) })
	}
	wait.Wait()
	for _, err := range errs {
		if err == nil {
			succeeded++
		}
	}
	return succeeded
}

var errDown = errors.New("the store is down")

// failing makes calls of a store method fail for keys with a prefix, until repair is called.
func (w *factorFixture) failing(method, prefix string) (repair func()) {
	w.durable.Before = func(called, key string) error {
		if called == method && strings.HasPrefix(key, prefix) {
			return errDown
		}
		return nil
	}
	return func() { w.durable.Before = nil }
}

// If the store fails, nothing changes, and the operation can be retried.
func TestFactorFaults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		method, prefix string
		enrolled       bool // whether a factor was enrolled before the failure
		do             func(context.Context, *factorFixture) error
	}{
		"enrolling": {"Add", "factors:", false, func(ctx context.Context, w *factorFixture) error {
			_, err := w.EnrollApp(ctx, w.alice, proved, "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP", mustCode("JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"))
			return err
		}},
		"enrolling, at the code": {"Add", "otp:", false, func(ctx context.Context, w *factorFixture) error {
			_, err := w.EnrollApp(ctx, w.alice, proved, "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP", mustCode("JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"))
			return err
		}},
		"removing": {"Swap", "factors:", true, func(ctx context.Context, w *factorFixture) error { return w.RemoveApp(ctx, w.alice, proved) }},
		"recovery codes regenerated": {"Swap", "factors:", true, func(ctx context.Context, w *factorFixture) error {
			_, err := w.RenewRecoveryCodes(ctx, w.alice, proved)
			return err
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFactorFixture(t)
			var recovery []string
			if tt.enrolled {
				_, recovery = w.enrolApp(t)
			}
			repair := w.failing(tt.method, tt.prefix)
			if err := tt.do(t.Context(), w); !errors.Is(err, errDown) {
				t.Errorf("the error is %v", err)
			}
			repair()
			if loaded := w.loadFactors(t, w.alice); loaded.HasAny() != tt.enrolled || len(loaded.RecoveryCodeHashes) != len(recovery) {
				t.Errorf("afterwards %+v", loaded)
			}
			if err := tt.do(t.Context(), w); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

func mustCode(secret string) string {
	key, err := totp.DecodeSecret(secret)
	if err != nil {
		panic(err)
	}
	return totp.Code(key, time.Now().Unix()/30)
}

// An unreadable enrollment causes an error. If it were treated as empty, the password alone would be sufficient to sign in.
func TestUnreadableEnrolment(t *testing.T) {
	t.Parallel()
	w := newFactorFixture(t)
	w.enrolApp(t)
	w.Enrollments.Keys = keyring.New(new(providertest.Storage), "keys.json", slog.New(slog.DiscardHandler))
	if loaded, err := w.Load(t.Context(), w.alice); err == nil {
		t.Errorf("enrolled %+v", loaded)
	}
	if had, err := w.Enrollments.Reset(t.Context(), "alice"); !had || err != nil {
		t.Errorf("reset: %v, %v", had, err)
	}
	if w.loadFactors(t, w.alice).HasAny() {
		t.Error("still there")
	}
}

// An enrollment copied to another user's store entry is not accepted.
func TestEnrolmentIsBound(t *testing.T) {
	t.Parallel()
	w := newFactorFixture(t)
	w.enrolApp(t)
	entry, err := w.durable.Get(t.Context(), store.Key("factors", "alice"))
	if err == nil {
		err = w.durable.Add(t.Context(), store.Key("factors", "bob"), entry, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	if loaded, err := w.Load(t.Context(), w.Directory.User("bob")); !errors.Is(err, keyring.ErrUnsealFailed) {
		t.Errorf("enrolled %+v, %v", loaded, err)
	}
}
