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

// attackHolder is a token holder who attacks, with the content that its responses may contain.
type attackHolder struct {
	guardPrincipal
	token    string
	attacker *guardattack.Attacker
	allowed  references
	tokens   map[string]bool // tokens in all permitted texts
	writes   bool            // whether the scopes include any write permission
}

// attackers returns an attackHolder for each principal. Each of them generates different attacks.
func (g *guardTest) attackers(t *testing.T, principals []guardPrincipal) []*attackHolder {
	t.Helper()
	var all []*attackHolder
	for i, p := range principals {
		as := &attackHolder{guardPrincipal: p, token: g.token(t, p.holder), allowed: g.oracle.allowed(t, p.grants, "rs"), tokens: map[string]bool{}}
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

// capabilities returns the server's capabilities by resource type.
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

// attackRun sends attacks from concurrent senders and counts the results.
type attackRun struct {
	g  *guardTest
	t  *testing.T
	mu sync.Mutex

	sent          int
	statuses      map[int]int
	withResources int            // number of responses that contain a resource
	faults        map[string]int // number of faults by the first words of the fault
}

// attackFaults is the maximum number of faults that are reported per kind.
const attackFaults = 5

func (r *attackRun) fault(as *attackHolder, a guardattack.Attack, kind, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faults[kind]++; r.faults[kind] <= attackFaults {
		r.t.Errorf("%s\n  token: %s (%s)\n  request: %.1500s\n  %.1500s", kind, as.name, as.holder.scope, a, detail)
	}
}

// send sends an attack and counts it. HAPI closes the connection of a rejected request before it has read the full body,
// sometimes while the next request is being sent. The next request then gets 502 and is resent, as an app would do.
func (r *attackRun) send(as *attackHolder, a guardattack.Attack) (httpResponse, bool) {
	got, err := r.g.trySend(r.t, as.token, a.Method, a.Path, a.Body, a.Headers...)
	if got.status == http.StatusBadGateway || bytes.Contains(got.body, []byte(`"502 Bad Gateway"`)) { // status of an entry in a batch
		got, err = r.g.trySend(r.t, as.token, a.Method, a.Path, a.Body, a.Headers...)
	}
	if err != nil {
		return got, false // the URL is invalid
	}
	if got.header.Get("Content-Encoding") == "gzip" {
		got.body = decompress(got.body)
	}
	r.mu.Lock()
	r.sent++
	r.statuses[got.status]++
	r.mu.Unlock()
	return got, true
}

func decompress(body []byte) []byte {
	reader, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return body
	}
	text, _ := io.ReadAll(reader)
	return text
}

// testAttacks sends generated attacks and checks each response for other patients' data.
func (g *guardTest) testAttacks(t *testing.T, pairs int) {
	if *guardMore {
		pairs *= 10
	}
	before := g.oracle.versions(t, g.world.Types())
	r := &attackRun{g: g, t: t, statuses: map[int]int{}, faults: map[string]int{}}
	began := time.Now()
	r.all(g.attackers(t, readers(g.world)), pairs)
	t.Logf("%d requests in %v: %v, %d answers with resources", r.sent, time.Since(began).Round(time.Second), r.statuses, r.withResources)
	for kind, n := range r.faults {
		t.Logf("%d × %s", n, kind)
	}
	after := g.oracle.versions(t, g.world.Types())
	maps.DeleteFunc(after, func(reference, _ string) bool { // files of exports are not resources of a patient
		return strings.HasPrefix(reference, "Binary/") && before[reference] == ""
	})
	if !maps.Equal(before, after) {
		t.Errorf("read-only records were changed:\n%s", differences(before, after))
	}
}

// all sends the given number of pairs, divided among four concurrent senders and all attackers.
func (r *attackRun) all(attackers []*attackHolder, pairs int) {
	type pair struct {
		as *attackHolder
		a  guardattack.Attack
	}
	var weighted []*attackHolder // attackers without permitted resources are selected less often
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

// pair sends an attack, and then the same attack on an absent resource. It compares the responses.
func (r *attackRun) pair(as *attackHolder, a guardattack.Attack) {
	got, ok := r.send(as, a)
	if !ok {
		return
	}
	r.check(as, a, got)
	if a.Victim != "" && as.tokens[a.Victim] {
		a.Victim += "m" // permission to know an id does not imply permission to read the content
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
			return // the responses differ in their versions
		}
		if got, ok = r.send(as, a); !ok { // compare the response after the write has been applied
			return
		}
	}
	if is, would := comparableText(got, a.Victim), comparableText(absent, a.Victim); is != would {
		r.fault(as, a, "reveals that a record exists", firstDifference(is, would))
	}
}

// hasSucceeded reports whether a write succeeded, including a write in a batch.
func hasSucceeded(a httpResponse) bool {
	return a.status < 300 && (!bytes.Contains(a.body, []byte(`"batch-response"`)) || bytes.Contains(a.body, []byte(`"status":"2`)))
}

// check reports data in a response that the attacker may not see.
func (r *attackRun) check(as *attackHolder, a guardattack.Attack, got httpResponse) {
	byServer := as.writes && bytes.Contains(got.body, []byte("The FHIR server failed to process the request")) // the server fails for requests that are not valid FHIR
	if got.status > http.StatusInternalServerError || got.status == http.StatusInternalServerError && !byServer {
		r.fault(as, a, fmt.Sprintf("answered with %d", got.status), string(got.body))
	}
	if reading := a.Method == http.MethodGet || a.Method == http.MethodHead || a.Method == http.MethodPost; !reading && !as.writes && got.status < 300 {
		r.fault(as, a, "changed something", string(got.body))
	}
	requested, _ := url.PathUnescape(a.String())
	named := guardattack.Tokens([]byte(requested))
	text := responseText(got)
	returned := resourcesIn(got.body)
	if as.writes && len(as.allowed) > 0 { // readable resources in the response may contain text that the attacker wrote
		text = responseText(httpResponse{header: got.header, body: withoutResources(got.body)})
	}
	for token := range guardattack.Tokens([]byte(text)) {
		if !as.tokens[token] && !named[token] {
			r.fault(as, a, "contains another patient's token", token+" in "+excerptAround(text, token))
			break
		}
	}
	if len(returned) > 0 {
		r.mu.Lock()
		r.withResources++
		r.mu.Unlock()
	}
	for _, reference := range returned {
		isNew := as.writes && len(guardattack.Tokens([]byte(reference))) == 0
		if !as.allowed[reference] && !(isNew && len(as.allowed) > 0) {
			r.fault(as, a, "returns another patient's record", reference+" in "+string(got.body))
			break
		}
	}
}

// versions returns the current version of each resource, by reference.
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
