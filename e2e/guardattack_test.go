package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

// attackedAs is a holder of a token who attacks, and what its answers may hold.
type attackedAs struct {
	guardPrincipal
	token    string
	attacker *guardattack.Attacker
	allowed  references
	tokens   map[string]bool // of all texts that are allowed
	writes   bool            // whether the scopes let anything be changed
}

// attackers are the principals as attackers, each with attacks of its own.
func (g *guardTest) attackers(t *testing.T, principals []guardPrincipal) []*attackedAs {
	t.Helper()
	var all []*attackedAs
	for i, p := range principals {
		as := &attackedAs{guardPrincipal: p, token: g.token(t, p.holder), allowed: g.oracle.allowed(t, p.grants, "rs"), tokens: map[string]bool{}}
		as.attacker = guardattack.NewAttacker(g.world, g.capabilities, g.world.Patients[0], *guardSeed<<16+uint64(i))
		for _, grant := range p.grants {
			as.attacker.Types = append(as.attacker.Types, grant.types...)
		}
		for reference := range as.allowed {
			maps.Copy(as.tokens, guardattack.Tokens([]byte(g.oracle.texts[reference])))
		}
		all = append(all, as)
	}
	return all
}

// capabilities are what the server says that it can do, by type.
func (h fhirAPI) capabilities(t *testing.T) map[string]guardattack.Capabilities {
	t.Helper()
	var statement struct {
		Rest []struct {
			Resource []struct {
				Type string
				guardattack.Capabilities
			}
		}
	}
	h.send(t, http.MethodGet, "metadata", "").is(t, http.StatusOK).decode(t, &statement)
	byType := map[string]guardattack.Capabilities{}
	for _, r := range statement.Rest[0].Resource {
		byType[r.Type] = r.Capabilities
	}
	return byType
}

// attackRun sends attacks from some senders at once, and counts.
type attackRun struct {
	g  *guardTest
	t  *testing.T
	mu sync.Mutex

	sent     int
	statuses map[int]int
	shown    int            // answers with a resource in them
	faults   map[string]int // by the first words of what is wrong
}

// attackFaults is how many faults of a kind are shown.
const attackFaults = 5

func (r *attackRun) fault(as *attackedAs, a guardattack.Attack, kind, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faults[kind]++; r.faults[kind] <= attackFaults {
		r.t.Errorf("%s\n  token: %s (%s)\n  request: %.1500s\n  %.1500s", kind, as.name, as.holder.scope, a, detail)
	}
}

// send sends an attack and counts it. HAPI closes the connection of a request that it refuses before having read it
// all, at times when the next one is on its way: that is answered with 502, and sent again as an app would.
func (r *attackRun) send(as *attackedAs, a guardattack.Attack) (answer, bool) {
	got, err := r.g.trySend(r.t, as.token, a.Method, a.Path, a.Body, a.Headers...)
	if got.status == http.StatusBadGateway || bytes.Contains(got.body, []byte(`"502 Bad Gateway"`)) { // of a batch's entry
		got, err = r.g.trySend(r.t, as.token, a.Method, a.Path, a.Body, a.Headers...)
	}
	if err != nil {
		return got, false // not a URL
	}
	if got.header.Get("Content-Encoding") == "gzip" {
		got.body = unzipped(got.body)
	}
	r.mu.Lock()
	r.sent++
	r.statuses[got.status]++
	r.mu.Unlock()
	return got, true
}

func unzipped(body []byte) []byte {
	reader, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return body
	}
	text, _ := io.ReadAll(reader)
	return text
}

// testAttacks draws attacks and looks in each answer for what is another patient's.
func (g *guardTest) testAttacks(t *testing.T, pairs int) {
	if *guardMore {
		pairs *= 10
	}
	before := g.oracle.versions(t, g.world.Types())
	r := &attackRun{g: g, t: t, statuses: map[int]int{}, faults: map[string]int{}}
	began := time.Now()
	r.all(g.attackers(t, readers(g.world)), pairs)
	t.Logf("%d requests in %v: %v, %d answers with resources", r.sent, time.Since(began).Round(time.Second), r.statuses, r.shown)
	for kind, n := range r.faults {
		t.Logf("%d × %s", n, kind)
	}
	after := g.oracle.versions(t, g.world.Types())
	maps.DeleteFunc(after, func(reference, _ string) bool { // the files of exports
		return strings.HasPrefix(reference, "Binary/") && before[reference] == ""
	})
	if !maps.Equal(before, after) {
		t.Errorf("what nobody may change was changed:\n%s", differences(before, after))
	}
}

// all sends so many pairs, shared out among the attackers and four senders.
func (r *attackRun) all(attackers []*attackedAs, pairs int) {
	type pair struct {
		as *attackedAs
		a  guardattack.Attack
	}
	var weighted []*attackedAs // who may see nothing attacks seldom
	for _, as := range attackers {
		weighted = append(weighted, as)
		if len(as.allowed) > 1 {
			weighted = append(weighted, as, as, as)
		}
	}
	queue := make(chan pair)
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for p := range queue {
				r.pair(p.as, p.a)
			}
		})
	}
	for i := range pairs {
		as := weighted[i%len(weighted)]
		queue <- pair{as, as.attacker.Draw()}
	}
	close(queue)
	senders.Wait()
}

// pair sends an attack, and the same on what is not there.
func (r *attackRun) pair(as *attackedAs, a guardattack.Attack) {
	got, ok := r.send(as, a)
	if !ok {
		return
	}
	r.check(as, a, got)
	if a.Victim != "" && as.tokens[a.Victim] {
		a.Victim += "m" // whoever may know the id may still not know the content
	}
	b := a.OnAbsent()
	if a.Victim == "" || as.tokens[a.Victim] || b.String() == a.String() {
		return
	}
	absent, ok := r.send(as, b)
	if !ok {
		return
	}
	r.check(as, b, absent)
	if as.writes && hasSucceeded(got) {
		if hasSucceeded(absent) {
			return // the versions differ
		}
		if got, ok = r.send(as, a); !ok { // what comes after it has been done
			return
		}
	}
	if is, would := toCompare(got, a.Victim), toCompare(absent, a.Victim); is != would {
		r.fault(as, a, "tells that a record is there", firstDifference(is, would))
	}
}

// hasSucceeded reports whether a write, or one of a batch, has.
func hasSucceeded(a answer) bool {
	return a.status < 300 && (!bytes.Contains(a.body, []byte(`"batch-response"`)) || bytes.Contains(a.body, []byte(`"status":"2`)))
}

// check looks for what must not be in an answer.
func (r *attackRun) check(as *attackedAs, a guardattack.Attack, got answer) {
	byServer := as.writes && bytes.Contains(got.body, []byte("The FHIR server could not answer")) // at what is no FHIR
	if got.status > http.StatusInternalServerError || got.status == http.StatusInternalServerError && !byServer {
		r.fault(as, a, fmt.Sprintf("answered with %d", got.status), string(got.body))
	}
	if reading := a.Method == http.MethodGet || a.Method == http.MethodHead || a.Method == http.MethodPost; !reading && !as.writes && got.status < 300 {
		r.fault(as, a, "changed something", string(got.body))
	}
	asked, _ := url.PathUnescape(a.String())
	named := guardattack.Tokens([]byte(asked))
	text := textOf(got)
	shown := resourcesIn(got.body)
	if as.writes && len(as.allowed) > 0 { // what is shown has what the writer has put there
		text = textOf(answer{header: got.header, body: withoutResources(got.body)})
	}
	for token := range guardattack.Tokens([]byte(text)) {
		if !as.tokens[token] && !named[token] {
			r.fault(as, a, "names what is not the patient's", token+" in "+around(text, token))
			break
		}
	}
	if len(shown) > 0 {
		r.mu.Lock()
		r.shown++
		r.mu.Unlock()
	}
	for _, reference := range shown {
		isNew := as.writes && len(guardattack.Tokens([]byte(reference))) == 0
		if !as.allowed[reference] && !(isNew && len(as.allowed) > 0) {
			r.fault(as, a, "shows what is not the patient's", reference+" in "+string(got.body))
			break
		}
	}
}

// versions are all resources with their versions.
func (o *guardOracle) versions(t *testing.T, types []string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, resourceType := range types {
		for reference, text := range o.server.all(t, resourceType) {
			var r struct{ Meta struct{ VersionID string } }
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				t.Fatal(err)
			}
			versions[reference] = r.Meta.VersionID
		}
	}
	return versions
}

func differences(before, after map[string]string) string {
	var lines []string
	for reference, version := range before {
		if after[reference] != version {
			lines = append(lines, fmt.Sprintf("%s: version %s, now %q", reference, version, after[reference]))
		}
	}
	for reference := range after {
		if before[reference] == "" {
			lines = append(lines, reference+" is new")
		}
	}
	return strings.Join(lines, "\n")
}
