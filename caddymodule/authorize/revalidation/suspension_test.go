package revalidation_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// member is a person with a sign-in at the hospital.
type member struct {
	subject string
	*authorizetest.Browser
	authorizetest.TokenResponse
}

// staff signs people in at alternating gateways.
func (h *hospital) staff(n int) (all []*member) {
	h.t.Helper()
	for i := range n {
		subject := fmt.Sprint("person-", i)
		h.admits(subject)
		lasting := []string{"offline_access", "online_access"}[i%2]
		b, tokens := h.signIn(lasting)
		b.Server = h.servers[i%len(h.servers)]
		all = append(all, &member{subject, b, tokens})
	}
	h.admits(subjects(all)...)
	return all
}

// admits makes the provider admit only the people with these subjects. The first of them signs in next.
func (h *hospital) admits(subjects ...string) {
	h.Change(func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: "another"}}
		for i, subject := range subjects {
			if i == 0 {
				s.People = nil
			}
			s.People = append(s.People, providertest.Person{Subject: subject, Claims: providertest.Alice.Claims})
		}
	})
}

func subjects(of []*member) (all []string) {
	for _, m := range of {
		all = append(all, m.subject)
	}
	return all
}

// mistakes are errors that make a provider deny everyone. Each returns its repair.
var mistakes = map[string]func(*hospital) (repair func()){
	"another host name": func(h *hospital) func() {
		h.Change(func(s *providertest.Settings) { s.Metadata["issuer"] = "https://other.hospital.example" })
		h.SetFault(providertest.Token, providertest.ErrorResponse(http.StatusBadRequest, "invalid_grant"))
		return func() {
			h.Change(func(s *providertest.Settings) { s.Metadata["issuer"] = h.Issuer })
			h.SetFault(providertest.Token, nil)
		}
	},
	"another key": func(h *hospital) func() {
		h.SetFault(providertest.Token, providertest.ErrorResponse(http.StatusBadRequest, "invalid_grant"))
		return func() { h.SetFault(providertest.Token, nil) }
	},
}

// A provider that denies everyone by mistake is suspended. Nothing is revoked, and access resumes after the repair, regardless
// of how long it takes.
func TestMistakeOfProviderEndsNothing(t *testing.T) {
	t.Parallel()
	for name, mistake := range mistakes {
		for _, gateways := range []int{1, 3} {
			for _, lasts := range []time.Duration{2 * interval, outage + time.Hour} {
				t.Run(fmt.Sprint(name, ", ", gateways, " gateways, ", lasts), func(t *testing.T) {
					t.Parallel()
					inHospital(t, gateways, nil, func(h *hospital) {
						all := h.staff(5)
						repair := mistake(h)
						waitForSweep(lasts)
						for _, m := range all {
							m.wantSuspended(t)
						}
						repair()
						waitForSweep(interval)
						for _, m := range all {
							h.wantWorks(m.Browser, m.TokenResponse)
						}
					})
				})
			}
		}
	}
}

// wantSuspended checks that access is rejected and that apps get an error that permits a retry.
func (m *member) wantSuspended(t *testing.T) {
	t.Helper()
	if m.HasSession() || m.IsTokenValid(m.AccessToken) {
		t.Errorf("%s: session or access token is still valid", m.subject)
	}
	m.wantRetry(t)
}

// wantRetry checks that apps get an error that permits a retry.
func (m *member) wantRetry(t *testing.T) {
	t.Helper()
	r := m.Post("/oauth2/token", authorizetest.RefreshForm(m.TokenResponse.RefreshToken, nil))
	if authorizetest.Body(t, r); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("%s: %d", m.subject, r.StatusCode)
	}
}

// If anyone else is confirmed, the denials of others take effect immediately.
func TestDenialsWhileOthersAreConfirmed(t *testing.T) {
	t.Parallel()
	for _, stay := range []int{1, 5} {
		for _, gateways := range []int{1, 3} {
			t.Run(fmt.Sprint(stay, " stay, ", gateways, " gateways"), func(t *testing.T) {
				t.Parallel()
				inHospital(t, gateways, nil, func(h *hospital) {
					all := h.staff(6)
					h.admits(subjects(all[:stay])...)
					waitForSweep(interval)
					for _, m := range all[stay:] {
						h.wantInvalid(m.Browser, m.TokenResponse)
					}
					for _, m := range all[:stay] {
						h.wantWorks(m.Browser, m.TokenResponse)
					}
				})
			})
		}
	}
}

// If fewer than two other people are signed in, a denial takes effect, unless the discovery document contains another issuer.
func TestMistakeAtSmallSite(t *testing.T) {
	t.Parallel()
	for name, mistake := range mistakes {
		inHospital(t, 1, nil, func(h *hospital) {
			all := h.staff(2)
			repair := mistake(h)
			waitForSweep(interval)
			if name == "another host name" {
				all[0].wantSuspended(t)
			} else {
				h.wantInvalid(all[0].Browser, all[0].TokenResponse)
			}
			repair()
		})
	}
}

// New sign-ins at a suspended provider are served and checked, while earlier ones wait.
func TestSignInAtSuspendedProvider(t *testing.T) {
	t.Parallel()
	inHospital(t, 2, nil, func(h *hospital) {
		h.Change(func(s *providertest.Settings) { s.ReuseRefreshTokens = true })
		all := h.staff(4)
		h.admits("new")
		waitForSweep(interval)
		fresh, tokens := h.signIn("offline_access")
		waitForSweep(2 * interval)
		tokens = h.wantWorks(fresh, tokens)
		for _, m := range all {
			m.wantSuspended(t)
		}
		h.admits()
		waitForSweep(interval)
		h.wantInvalid(fresh, tokens)
		h.admits(subjects(all)...)
		waitForSweep(interval)
		for _, m := range all {
			h.wantWorks(m.Browser, m.TokenResponse)
		}
	})
}

// An operator can accept that a provider denies everyone.
func TestAcceptDenials(t *testing.T) {
	t.Parallel()
	inHospital(t, 2, nil, func(h *hospital) {
		if err := h.servers[0].AcceptDenials(t.Context(), "hospital"); !errors.Is(err, authorize.ErrNotSuspended) {
			t.Errorf("before: %v", err)
		}
		all := h.staff(4)
		h.admits()
		waitForSweep(interval)
		all[0].wantSuspended(t)
		authorizetest.NoError(t, h.servers[1].AcceptDenials(t.Context(), "hospital"))
		waitForSweep(interval)
		for _, m := range all {
			h.wantInvalid(m.Browser, m.TokenResponse)
		}
		if err := h.servers[0].AcceptDenials(t.Context(), "hospital"); !errors.Is(err, authorize.ErrNotSuspended) {
			t.Errorf("after: %v", err)
		}
	})
}

// While other people cannot be checked, a denial is neither final nor ignored.
func TestDenialInDoubt(t *testing.T) {
	t.Parallel()
	inHospital(t, -1, nil, func(h *hospital) {
		all := h.staff(3)
		time.Sleep(11 * time.Second)
		h.SetFault(providertest.UserInfo, providertest.Status(http.StatusBadGateway)) // after a refresh
		h.admits(subjects(all[1:])...)
		all[0].wantRetry(t)
		h.SetFault(providertest.UserInfo, nil)
		time.Sleep(time.Minute)
		h.wantInvalid(all[0].Browser, all[0].TokenResponse)
		h.wantWorks(all[1].Browser, all[1].TokenResponse)
	})
}

// Refresh tokens that reach their announced expiry are not treated as an error of the provider, regardless of their number.
func TestExpiredTokensAreNoMistake(t *testing.T) {
	t.Parallel()
	inHospital(t, -1, nil, func(h *hospital) {
		h.Change(func(s *providertest.Settings) {
			s.TokenResponse = func(answer map[string]any) { answer["refresh_expires_in"] = 1800 }
		})
		all := h.staff(4)
		h.SetFault(providertest.Token, providertest.ErrorResponse(http.StatusBadRequest, "invalid_grant"))
		time.Sleep(31 * time.Minute)
		for _, m := range all {
			h.wantInvalid(m.Browser, m.TokenResponse)
		}
	})
}

// The denial of a refresh token past its announced expiry takes effect immediately, even while the provider denies
// everyone else.
func TestExpiredTokenAmongMistakes(t *testing.T) {
	t.Parallel()
	inHospital(t, -1, nil, func(h *hospital) {
		answered := 0
		h.Change(func(s *providertest.Settings) {
			s.TokenResponse = func(answer map[string]any) {
				if answered++; answered == 1 {
					answer["refresh_expires_in"] = 1800
				}
			}
		})
		all := h.staff(4)
		h.SetFault(providertest.Token, providertest.ErrorResponse(http.StatusBadRequest, "invalid_grant"))
		time.Sleep(31 * time.Minute)
		h.wantInvalid(all[0].Browser, all[0].TokenResponse)
		all[1].wantSuspended(t)
	})
}

// A provider that logs off many idle people at once, e.g. at the end of a shift, is not suspended.
func TestIdleShiftIsNoMistake(t *testing.T) {
	t.Parallel()
	inBoundHospital(t, true, func(h *hospital) {
		all := h.staff(5)
		waitForSweep(2 * interval)
		h.becomes(nil)
		waitForSweep(interval)
		h.admits(subjects(all)...)
		for _, m := range all {
			h.wantInvalid(m.Browser, m.TokenResponse)
		}
	})
}
