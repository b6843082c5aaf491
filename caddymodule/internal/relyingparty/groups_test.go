package relyingparty_test

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

const graph = providertest.Endpoint("/v1.0/me/getMemberObjects")

// startGraph starts a provider whose ID tokens only refer to Microsoft Graph for the groups.
func startGraph(t *testing.T) (*providertest.Provider, *relyingparty.Provider) {
	t.Helper()
	idp := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: "s", Claims: map[string]any{
			"_claim_names": map[string]any{"groups": "src1"}, "_claim_sources": map[string]any{"src1": map[string]any{"endpoint": "https://graph.windows.net/x"}},
		}}}
	})
	return idp, newProvider(t, idp, func(c *relyingparty.Config) { c.GraphURL, c.SkipUserinfo = idp.Issuer, true })
}

// The groups are fetched at the sign-in and at each refresh, with the access token of the response.
func TestGraphGroups(t *testing.T) {
	t.Parallel()
	idp, p := startGraph(t)
	idp.SetFault(graph, providertest.JSON(http.StatusOK, map[string]any{"value": []string{"g", "h"}}))
	identity := mustSignIn(t, p, idp)
	want := []any{"g", "h"}
	if !reflect.DeepEqual(identity.Claims["groups"], want) {
		t.Errorf("groups %v", identity.Claims["groups"])
	}
	refreshed, err := p.Refresh(t.Context(), identity.RefreshToken, identity.Subject, func(string) {})
	if err != nil || !reflect.DeepEqual(refreshed.Claims["groups"], want) {
		t.Errorf("refreshed: %+v, %v", refreshed, err)
	}
	sent := idp.Requests(graph)
	if len(sent) != 2 || sent[0].Method != http.MethodPost || len(sent[0].Header.Get("Authorization")) < 20 {
		t.Errorf("requests %+v", sent)
	}
	if count(idp, providertest.UserInfo) != 0 {
		t.Error("userinfo was requested")
	}
}

// Nothing is fetched for people whose groups are in the ID token.
func TestGraphIsNotNeeded(t *testing.T) {
	t.Parallel()
	idp, p := startGraph(t)
	idp.Change(func(s *providertest.Settings) { s.People = []providertest.Person{providertest.Alice} })
	if mustSignIn(t, p, idp); count(idp, graph) != 0 {
		t.Error("the groups were requested")
	}
}

// A failure is never a denial, because a person must not lose access during an outage of Microsoft Graph.
func TestGraphFails(t *testing.T) {
	t.Parallel()
	var tooMany []string
	for i := range 2001 {
		tooMany = append(tooMany, fmt.Sprint(i))
	}
	for name, fault := range map[string]providertest.Fault{
		"forbidden":       providertest.Status(http.StatusForbidden),
		"throttled":       providertest.Status(http.StatusTooManyRequests),
		"redirect":        providertest.Redirect("https://attacker.example"),
		"no JSON":         providertest.SendHTML,
		"no groups":       providertest.JSON(http.StatusOK, map[string]any{}),
		"other types":     providertest.JSON(http.StatusOK, map[string]any{"value": []any{1}}),
		"too many groups": providertest.JSON(http.StatusOK, map[string]any{"value": tooMany}),
	} {
		idp, p := startGraph(t)
		idp.SetFault(graph, providertest.JSON(http.StatusOK, map[string]any{"value": []string{}}))
		identity := mustSignIn(t, p, idp)
		idp.SetFault(graph, fault)
		if _, err := signIn(t, p, idp, newRequest()); err == nil {
			t.Errorf("%s: signed in", name)
		}
		if _, err := p.Refresh(t.Context(), identity.RefreshToken, identity.Subject, func(string) {}); err == nil || relyingparty.IsDenial(err) || !errors.Is(err, relyingparty.ErrGroups) && name != "redirect" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
