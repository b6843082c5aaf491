package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

// The test requests records of the patient, of another patient, of everyone and of no patient. Records covered by the scopes
// are returned. All others get the response for an absent record.
func (g *guardTest) testReads(t *testing.T) {
	var records []guardattack.Record
	for _, owner := range []byte{g.world.Patients[0], g.world.Patients[1], guardattack.Everybody, guardattack.Hidden} {
		records = append(records, g.world.Of(owner)...)
	}
	for _, p := range readers(g.world) {
		t.Run(p.name, func(t *testing.T) {
			allowed := g.oracle.allowed(t, p.grants, "r")
			absent := map[string]string{}
			for _, r := range records {
				got := g.send(t, p.holder, http.MethodGet, r.Reference(), "")
				if allowed[r.Reference()] {
					if got.status != http.StatusOK {
						t.Errorf("%s: %d, want 200: %.300s", r.Reference(), got.status, got.body)
					}
					continue
				}
				if absent[r.Type] == "" {
					absent[r.Type] = comparableText(g.send(t, p.holder, http.MethodGet, r.Type+"/zqy9999", ""), "zqy9999")
				}
				if is := comparableText(got, r.ID); is != absent[r.Type] || got.status == http.StatusOK {
					t.Errorf("%s is distinguishable from an absent record: %s", r.Reference(), firstDifference(is, absent[r.Type]))
				}
			}
		})
	}
}

// Only the token that received a page link can use it. No token can use a page link of the FHIR server.
func (g *guardTest) testPages(t *testing.T) {
	all := readers(g.world)
	own := all[0].holder
	var page searchPage
	g.send(t, own, http.MethodGet, "Observation?_count=2", "").is(t, http.StatusOK).decode(t, &page)
	next := page.next()
	if next == "" {
		t.Fatal("no further page")
	}
	g.send(t, own, http.MethodGet, next, "").is(t, http.StatusOK)
	for _, p := range all[1:] {
		g.send(t, p.holder, http.MethodGet, next, "").is(t, http.StatusNotFound)
	}
	var ofServer searchPage
	g.server.send(t, http.MethodGet, "Observation?_count=2", "").is(t, http.StatusOK).decode(t, &ofServer)
	_, query, _ := strings.Cut(ofServer.next(), "?")
	for _, p := range all {
		for _, path := range []string{"?" + query, "Observation?" + query, "Patient?" + query, "Observation/_search?" + query} {
			if a := g.send(t, p.holder, http.MethodGet, path, ""); a.status == http.StatusOK && len(resourcesIn(a.body)) > 0 {
				t.Errorf("%s reads %s", p.name, path)
			}
		}
	}
}

// Responses do not depend on other patients' data: they stay the same when those patients have more or fewer records.
func (g *guardTest) testUnmoved(t *testing.T) {
	attackers := g.attackers(t, readers(g.world)[:11])
	type exchange struct {
		as     *attackHolder
		a      guardattack.Attack
		before string
	}
	var all []exchange
	for i := range 600 {
		as := attackers[i%len(attackers)]
		a := as.attacker.Draw()
		got, err := g.trySend(t, as.token, a.Method, a.Path, a.Body, a.Headers...)
		if err == nil && !strings.Contains(a.Path, "etadata") {
			all = append(all, exchange{as, a, unorderedText(got)})
		}
	}
	g.server.load(t, g.moreRecords())
	for _, one := range all {
		got, err := g.trySend(t, one.as.token, one.a.Method, one.a.Path, one.a.Body, one.a.Headers...)
		if err != nil {
			t.Fatal(err)
		}
		if after := unorderedText(got); after != one.before {
			t.Errorf("others' data shows\n  token: %s\n  request: %.600s\n  %s", one.as.name, one.a, firstDifference(one.before, after))
		}
	}
}

// unorderedText returns a response as comparable text that ignores the order of unsorted search results.
func unorderedText(a httpResponse) string {
	returned := references{}
	for _, r := range resourcesIn(a.body) {
		returned[r] = true
	}
	if len(returned) < 2 {
		return comparableText(a, "zqy9999")
	}
	return comparableText(httpResponse{status: a.status, header: a.header}, "zqy9999") + returned.String()
}

// moreRecords returns additional records of all patients except the first one.
func (g *guardTest) moreRecords() []guardattack.Record {
	var more []guardattack.Record
	for _, owner := range []byte(g.world.Patients[2:4]) {
		for _, r := range g.world.Of(owner) {
			if r.Type == "Patient" {
				continue
			}
			again := r
			again.ID = r.ID[:3] + "8" + r.ID[4:]
			again.JSON = strings.Replace(strings.ReplaceAll(r.JSON, r.ID+"m", again.ID+"m"), `"id":"`+r.ID+`"`, `"id":"`+again.ID+`"`, 1)
			more = append(more, again)
		}
	}
	return more
}
