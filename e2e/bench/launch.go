package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Number of patients of the FHIR server stand-in, and number of searches in the patient picker.
const (
	standInPatients = 100_000
	pickerSearches  = 400
)

// measureLaunches measures the cost of a launch context: code flows with and without a launch context, and the patient picker
// against the search that it sends to the FHIR server.
func measureLaunches(s settings, folder string) (err error) {
	records := httptest.NewServer(newStandIn(standInPatients))
	defer records.Close()
	for _, m := range []struct {
		fhirUser string
		measure  func(settings, *provider, string) error
	}{{"Patient/p1", contextFlows}, {"Practitioner/alice", comparePicker}} {
		gateway, err := startLaunching(s, folder, m.fhirUser, records.URL)
		if err != nil {
			return err
		}
		ours := &provider{server: gateway, clientID: "bench", secret: "bench-secret"}
		ours.paths.authorize, ours.paths.token = "/oauth2/authorize", "/oauth2/token"
		if err := errors.Join(m.measure(s, ours, records.URL), gateway.stop()); err != nil {
			return err
		}
	}
	return nil
}

// startLaunching runs a gateway with the user alice, who has the FHIR resource fhirUser. The gateway forwards FHIR requests at
// the issuer's host to records.
func startLaunching(s settings, folder, fhirUser, records string) (*server, error) {
	options := strings.NewReplacer("https://bench.example.org", "https://127.0.0.1", `name "Alice Adams"`, "fhir_user "+fhirUser).Replace(gatewayOptions)
	client := strings.Replace(fmt.Sprintf(benchClient, "bench", ""), "scope ", "scope launch/patient patient/*.rs user/*.rs ", 1)
	return start(s.binary, folder, site{
		name:    "launch-" + strings.ToLower(strings.ReplaceAll(fhirUser, "/", "-")),
		options: options + client + "\n\t}",
		routes:  "\tfhir_authorize\n\thandle /fhir/R4/* {\n\t\tfhir_bearer\n\t\treverse_proxy " + strings.TrimPrefix(records, "http://") + "\n\t}",
	})
}

// contextFlows compares code flows of a signed-in patient with and without a launch context.
func contextFlows(s settings, ours *provider, _ string) error {
	fmt.Printf("\n## Launch context, %d at once\n\n| code flow, signed in already | without a context | with one | ratio |\n|---|--:|--:|--:|\n", s.clients)
	for _, with := range []string{"", "openid "} {
		var a, b []load
		for range s.rounds {
			for _, m := range []struct {
				rounds *[]load
				scope  string
			}{{&a, with + "user/*.rs"}, {&b, with + "launch/patient patient/*.rs"}} {
				l, err := ours.duty(s, workload{"", m.scope, func(v *visitor) operation { return v.flow }})
				if err != nil {
					return fmt.Errorf("%s: %w", m.scope, err)
				}
				*m.rounds = append(*m.rounds, l)
			}
		}
		without, context := median(a).perRequest(), median(b).perRequest()
		name := map[string]string{"": "an access token", "openid ": "an ID token by RS256 too"}[with]
		fmt.Printf("| %s | %s | %s | **%.2f** |\n", name, micros(without), micros(context), float64(context)/float64(without))
	}
	return nil
}

// comparePicker compares the patient picker with the search that it sends to the FHIR
// server, alternately, one request at a time.
func comparePicker(_ settings, ours *provider, records string) error {
	v, err := ours.visit()
	if err != nil {
		return err
	}
	page, err := v.openPicker()
	if err != nil {
		return err
	}
	fmt.Printf("\n%d patients, %d searches:\n\n| choose a patient | p50 | p95 |\n|---|--:|--:|\n", standInPatients, pickerSearches)
	var pages, searches, beyond []time.Duration
	for range pickerSearches {
		name := typedName()
		pageTime, err := timeRequest(v.http, page+"&name="+name, `class="choice"`)
		if err != nil {
			return err
		}
		search, err := timeRequest(http.DefaultClient, records+"/fhir/R4/Patient?_count=20&_sort=family,given&name="+name, `"entry"`)
		if err != nil {
			return err
		}
		pages, searches, beyond = append(pages, pageTime), append(searches, search), append(beyond, pageTime-search)
	}
	for _, row := range []struct {
		name  string
		times []time.Duration
	}{{"the page", pages}, {"the search alone, asked of the FHIR server", searches}, {"the page beyond its search", beyond}} {
		slices.Sort(row.times)
		l := load{times: row.times}
		fmt.Printf("| %s | %s | %s |\n", row.name, milliseconds(l.quantile(0.5)), milliseconds(l.quantile(0.95)))
	}
	return nil
}

// openPicker signs in and returns the URL of the patient picker.
func (v *visitor) openPicker() (string, error) {
	request := url.Values{"response_type": {"code"}, "client_id": {v.clientID}, "redirect_uri": {redirectURI}, "scope": {"launch/patient patient/*.rs"}, "state": {randomText()}}
	r, err := v.http.Get(v.at(v.paths.authorize) + "?" + request.Encode())
	if err == nil {
		_, err = drain(r)
	}
	if err != nil {
		return "", err
	}
	signIn, err := r.Location()
	if err != nil {
		return "", err
	}
	form := url.Values{"request": {signIn.Query().Get("request")}, "username": {"alice"}, "password": {"alice-demo-password"}}
	if r, err = v.http.PostForm(v.at("/oauth2/login"), form); err != nil {
		return "", err
	}
	if _, err := drain(r); err != nil {
		return "", err
	}
	picker, err := r.Location()
	if err != nil {
		return "", err
	}
	return v.at(picker.RequestURI()), nil
}

// timeRequest returns the duration of a GET request. It returns an error if the response does not contain the text.
func timeRequest(client *http.Client, address, text string) (time.Duration, error) {
	start := time.Now()
	r, err := client.Get(address)
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(r.Body)
	elapsed := time.Since(start)
	if err == nil && (r.StatusCode != http.StatusOK || !strings.Contains(string(body), text)) {
		err = fmt.Errorf("%s: status %d, without %s: %.300s", address, r.StatusCode, text, body)
	}
	return elapsed, errors.Join(err, r.Body.Close())
}

// typedName returns a random prefix of a patient's name in the stand-in.
func typedName() string {
	name := familyName(rand.IntN(standInPatients))
	return strings.ToLower(name[:2+rand.IntN(len(name)-2)])
}
