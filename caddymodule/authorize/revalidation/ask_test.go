package revalidation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// putRecord stores a sign-in that was last confirmed an hour ago.
func putRecord(t *testing.T, s *SignIns, r record) *record {
	t.Helper()
	r.SID, r.Provider, r.Issuer, r.Subject, r.Token = "sid", "hospital", "https://successor.example", "alice", "token"
	r.Confirmed, r.ActiveUntil, r.SessionExpiry = time.Now().Add(-time.Hour), time.Now().Add(time.Hour), time.Now().Add(time.Hour)
	value, err := store.ToJSON(r)
	if err == nil {
		err = s.checker.records.store.Put(t.Context(), recordPrefix+r.name(), value, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

// A check of a sign-in that another gateway has denied or removed in the meantime fails without a request.
func TestCheckOfDeniedSignIn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		put   bool
		ended int
	}{"denied": {true, 1}, "removed": {false, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counter, ended := new(requestCounter), 0
			s, p := newSignIns(t, counter, &ended)
			r := record{SID: "sid", Provider: "hospital"}
			if tt.put {
				r = *putRecord(t, s, record{Denied: true})
			}
			err := s.checker.checkSignIn(t.Context(), p, r.name(), checkOptions{maxAge: time.Minute})
			if !errors.Is(err, errEnded) || counter.requests != 0 || ended != tt.ended {
				t.Errorf("%v, %d requests, %d sign-ins ended", err, counter.requests, ended)
			}
		})
	}
}

// A denied sign-in is revoked by the next sweep if its revocation failed, whether or not it can be checked.
func TestSweepEndsDenied(t *testing.T) {
	t.Parallel()
	for name, denied := range map[string]record{"refresh token": {Denied: true}, "expired access token": {Denied: true, AccessTokenExpiry: time.Now().Add(-time.Hour)}} {
		counter, ended := new(requestCounter), 0
		s, _ := newSignIns(t, counter, &ended)
		r := putRecord(t, s, denied)
		do := s.sweeper.due(r, r.name(), true)
		if do == nil {
			t.Errorf("%s: nothing is due", name)
			continue
		}
		if do(t.Context()); ended != 1 || counter.requests != 0 {
			t.Errorf("%s: %d sign-ins ended, %d requests", name, ended, counter.requests)
		}
	}
}

// A gateway that has lost its claim stores nothing, because the person may have signed in again.
func TestLostClaimStoresNothing(t *testing.T) {
	t.Parallel()
	ended := 0
	s, _ := newSignIns(t, new(requestCounter), &ended)
	r := putRecord(t, s, record{Claim: "another's"})
	mine := *r
	mine.Claim = "mine"
	if _, err := s.checker.storeResult(t.Context(), &mine, "", func(r *record) { r.Denied = true }); err != nil {
		t.Fatal(err)
	}
	if after, err := s.checker.records.read(t.Context(), r.name()); err != nil || after.Denied {
		t.Errorf("%+v, %v", after, err)
	}
	if err := s.checker.enforceDenial(t.Context(), &mine); err != nil || ended != 0 {
		t.Errorf("%v, %d sign-ins ended", err, ended)
	}
}

// If a token of an earlier sign-in lasts longer, it remains in use, but only for the same subject and issuer.
func TestTokenThatLastsLonger(t *testing.T) {
	t.Parallel()
	before := record{Issuer: "https://a.example", Subject: "alice"}
	for name, tt := range map[string]struct {
		next record
		want bool
	}{
		"a brief one":            {record{Issuer: before.Issuer, Subject: before.Subject, ExpiresWithSession: true}, true},
		"an access token":        {record{Issuer: before.Issuer, Subject: before.Subject, AccessTokenExpiry: time.Now()}, true},
		"one that lasts as long": {record{Issuer: before.Issuer, Subject: before.Subject}, false},
		"another subject's":      {record{Issuer: before.Issuer, Subject: "bob", ExpiresWithSession: true}, false},
		"another issuer's":       {record{Issuer: "https://b.example", Subject: before.Subject, ExpiresWithSession: true}, false},
	} {
		if got := before.lastsLonger(&tt.next); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// plainTokens stores refresh tokens unsealed.
type plainTokens struct{ keyring.StorageSealer }

func (plainTokens) UnsealStored(_ context.Context, sealed, _ string) (string, error) {
	return sealed, nil
}

// requestCounter is the transport of an identity provider. It counts requests and returns an error for each of them.
type requestCounter struct{ requests int }

// RoundTrip implements [http.RoundTripper].
func (c *requestCounter) RoundTrip(*http.Request) (*http.Response, error) {
	c.requests++
	w := httptest.NewRecorder()
	w.WriteHeader(http.StatusServiceUnavailable)
	return w.Result(), nil
}

// newSignIns returns the sign-ins at one provider with the issuer https://successor.example.
func newSignIns(t *testing.T, transport http.RoundTripper, ended *int) (*SignIns, *people.Provider) {
	t.Helper()
	const key = "hospital"
	discard := slog.New(slog.DiscardHandler)
	accounts := &people.Accounts{Providers: map[string]*people.Provider{}, Logger: discard}
	err := accounts.AddProvider(people.IdentityProvider{
		Key: key, Issuer: "https://successor.example", ClientID: "us", ClientSecret: "secret", Transport: transport,
	}, "https://fhir.example.org/oauth2/callback/hospital")
	if err != nil {
		t.Fatal(err)
	}
	memory := store.NewMemory(0, 0)
	return New(Config{
		DurableStore: memory, Revocations: revocation.New(memory, memory, discard), Keys: plainTokens{}, Accounts: accounts, SessionLifetime: time.Hour, AccessTokenLifetime: time.Hour, GrantLifetime: time.Hour, Logger: discard,
		SessionKey: func(sid string) string { return "session:" + sid }, EndSignIn: func(context.Context, SignIn) error { *ended++; return nil },
	}), accounts.Providers[key]
}

// The record of a sign-in at another issuer is left unchanged by every step, because it may have been replaced since the
// preceding step. The current provider with that key receives no request, and nothing is revoked.
func TestRecordOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(context.Context, *SignIns, *people.Provider, *record) error{
		"check": func(ctx context.Context, s *SignIns, p *people.Provider, r *record) error {
			_, err := s.check(ctx, p, r.name(), checkOptions{maxAge: time.Second})
			return err
		},
		"claim": func(ctx context.Context, s *SignIns, p *people.Provider, r *record) error {
			_, claimed, err := s.checker.claim(ctx, p, r.name(), time.Second)
			if claimed {
				return errors.New("the gateway may ask")
			}
			return err
		},
		"due": func(ctx context.Context, s *SignIns, _ *people.Provider, r *record) error {
			if do := s.sweeper.due(r, r.name(), true); do != nil {
				do(ctx)
			}
			return nil
		},
		"renewal": func(ctx context.Context, s *SignIns, p *people.Provider, r *record) error {
			_, renewable, err := s.IsUsable(ctx, r.SID, r.Provider)
			may, tried := s.TryRenewal(ctx, r.SID, p)
			if renewable || may {
				return errors.New("the browser may be sent to the provider")
			}
			return errors.Join(err, tried)
		},
	} {
		for state, record := range map[string]record{
			"yes of long ago": {},
			"denied":          {Denied: true},
			"access token":    {AccessTokenExpiry: time.Now().Add(time.Hour)},
			"expired token":   {AccessTokenExpiry: time.Now().Add(-time.Minute)},
		} {
			t.Run(name+" "+state, func(t *testing.T) {
				t.Parallel()
				counter, ended := new(requestCounter), 0
				s, p := newSignIns(t, counter, &ended)
				storage := s.checker.records.store
				r := record
				r.SID, r.Provider, r.Issuer, r.Subject, r.Token = "sid", "hospital", "https://hospital.example", "alice", "token"
				r.LastActive = time.Now()
				r.Confirmed, r.ActiveUntil, r.SessionExpiry = time.Now().Add(-time.Hour), time.Now().Add(time.Hour), time.Now().Add(time.Hour)
				r.ReferencedUntil = r.ActiveUntil.Add(closingPeriod)
				before, err := store.ToJSON(r)
				if err != nil {
					t.Fatal(err)
				}
				if err := storage.Put(t.Context(), recordPrefix+r.name(), before, time.Hour); err != nil {
					t.Fatal(err)
				}
				if err := step(t.Context(), s, p, &r); err != nil {
					t.Error(err)
				}
				after, err := storage.Get(t.Context(), recordPrefix+r.name())
				if err != nil || !bytes.Equal(before, after) || counter.requests > 0 || ended > 0 {
					t.Errorf("%d requests, %d sign-ins ended; the record was %s and is %s, %v", counter.requests, ended, before, after, err)
				}
			})
		}
	}
}

// A response about one person does not cause a back-off for everyone.
func TestResultOfFailure(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want Result
	}{
		{nil, Answered},
		{fmt.Errorf("%w: 403", relyingparty.ErrGroups), Answered},
		{fmt.Errorf("%w: exp", relyingparty.ErrIDToken), Answered},
		{&relyingparty.Error{Kind: relyingparty.TokenRejected, Status: 400, Code: "invalid_grant"}, Answered},
		{&relyingparty.Error{Kind: relyingparty.TokenRejected, Status: 401, Code: "invalid_client"}, Rejected},
		{&relyingparty.Error{Kind: relyingparty.ReadTimeout}, Unanswered},
	} {
		if got := resultOf(tt.err); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.err, got, tt.want)
		}
	}
}
