package main

import (
	"fmt"
	"net/http"
	"strings"
)

// standIn is a FHIR server that searches patients by name, sequentially.
type standIn struct {
	names   []string // in lower case, with a space before each word
	records []string
}

// Syllables of patient names. Their order in a name depends on the patient's number.
var syllables = strings.Fields("al ber con da el fer gar hol in jo kar lin mar nor ol per quin ros san tor ul van wes yor zel")

// familyName returns the family name of the patient with number n.
func familyName(n int) string {
	k := len(syllables)
	name := syllables[n%k] + syllables[n/k%k] + syllables[n/k/k%k]
	return strings.ToUpper(name[:1]) + name[1:]
}

func givenName(n int) string {
	name := syllables[n*7%len(syllables)] + "a"
	return strings.ToUpper(name[:1]) + name[1:]
}

func newStandIn(patients int) *standIn {
	s := new(standIn)
	for n := range patients {
		family, given := familyName(n), givenName(n)
		s.names = append(s.names, " "+strings.ToLower(given+" "+family))
		s.records = append(s.records, fmt.Sprintf(`{"resource":{"resourceType":"Patient","id":"p%d","name":[{"family":%q,"given":[%q]}],`+
			`"birthDate":"19%02d-01-02","gender":"female","identifier":[{"system":"urn:mrn","value":"MRN-%06d"}],`+
			`"address":[{"line":["%d High Street"],"city":"Springfield"}]},"search":{"mode":"match"}}`, n, family, given, n%100, n, n%200))
	}
	return s
}

// ServeHTTP responds with the first patients with names that have, for each word of the search, a word that begins with it.
func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var entries []string
	found, words := 0, r.URL.Query()["name"]
	for n, name := range s.names { // visits all patients, like a server that calculates the total
		if matches(name, words) {
			found++
			if len(entries) < 20 {
				entries = append(entries, s.records[n])
			}
		}
	}
	w.Header().Set("Content-Type", "application/fhir+json")
	fmt.Fprintf(w, `{"resourceType":"Bundle","type":"searchset","total":%d,"entry":[%s]}`, found, strings.Join(entries, ","))
}

func matches(name string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(name, " "+strings.ToLower(word)) {
			return false
		}
	}
	return true
}
