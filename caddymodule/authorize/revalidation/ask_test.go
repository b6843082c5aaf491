package revalidation

import (
	"errors"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// putRecord stores the record of a sign-in whose provider has last said yes an hour ago.
func putRecord(t *testing.T, s *SignIns, r record) *record {
	t.Helper()
	r.SID, r.Provider, r.Issuer, r.Subject, r.Token = "sid", "hospital", "https://successor.example", "alice", "token"
	r.Yes, r.Active, r.Session = time.Now().Add(-time.Hour), time.Now().Add(time.Hour), time.Now().Add(time.Hour)
	value, err := store.ToJSON(r)
	if err == nil {
		err = s.asker.records.store.Put(t.Context(), recordPrefix+r.name(), value, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

// Whoever asks about a sign-in that was denied or removed meanwhile, by another gateway, gets a no without a request.
func TestAskWhereTheAnswerIsKnown(t *testing.T) {
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
			err := s.asker.ask(t.Context(), p, r.name(), question{recent: time.Minute})
			if !errors.Is(err, errEnded) || counter.requests != 0 || ended != tt.ended {
				t.Errorf("%v, %d requests, %d sign-ins ended", err, counter.requests, ended)
			}
		})
	}
}

// A sign-in that was denied, and could not be ended, is ended by the next sweep, whether or not the provider could be asked.
func TestSweepEndsDenied(t *testing.T) {
	t.Parallel()
	for name, denied := range map[string]record{"refresh token": {Denied: true}, "expired access token": {Denied: true, Expires: time.Now().Add(-time.Hour)}} {
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

// A gateway that has lost its claim to ask stores nothing: the person may have signed in again.
func TestKeepWithoutClaim(t *testing.T) {
	t.Parallel()
	ended := 0
	s, _ := newSignIns(t, new(requestCounter), &ended)
	r := putRecord(t, s, record{Claim: "another's"})
	mine := *r
	mine.Claim = "mine"
	if _, err := s.asker.keep(t.Context(), &mine, "", func(r *record) { r.Denied = true }); err != nil {
		t.Fatal(err)
	}
	if after, err := s.asker.records.read(t.Context(), r.name()); err != nil || after.Denied {
		t.Errorf("%+v, %v", after, err)
	}
	if err := s.asker.deny(t.Context(), &mine); err != nil || ended != 0 {
		t.Errorf("%v, %d sign-ins ended", err, ended)
	}
}

// A token of an earlier sign-in stays in use only for the same subject of the same issuer.
func TestTokenThatLastsLonger(t *testing.T) {
	t.Parallel()
	before := record{Issuer: "https://a.example", Subject: "alice"}
	for name, tt := range map[string]struct {
		next record
		want bool
	}{
		"a brief one":            {record{Issuer: before.Issuer, Subject: before.Subject, Brief: true}, true},
		"an access token":        {record{Issuer: before.Issuer, Subject: before.Subject, Expires: time.Now()}, true},
		"one that lasts as long": {record{Issuer: before.Issuer, Subject: before.Subject}, false},
		"another subject's":      {record{Issuer: before.Issuer, Subject: "bob", Brief: true}, false},
		"another issuer's":       {record{Issuer: "https://b.example", Subject: before.Subject, Brief: true}, false},
	} {
		if got := before.lastsLonger(&tt.next); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
