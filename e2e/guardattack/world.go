package guardattack

import (
	_ "embed" // embeds the records
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// In these files, each line is a record: its type, a name that is unique among its owner's records, and its JSON members. Names
// in braces are placeholders:
//
//	{Type.name}        the record of the same owner, otherwise the shared record
//	{next Type.name}   the next patient's record; {first Type.name} the first patient's
//	{m} {m64} {i}      the record's own string: plain, in base64, and as an identifier
//	{day} {n}          a day and a number that only this patient's records have
var (
	//go:embed world.tsv
	ofPatients string
	//go:embed common.tsv
	ofEverybody string
	//go:embed hidden.tsv
	ofNobody string
)

// Owners that are not patients. Patients have the letters from "a".
const (
	Everybody = 's'
	Hidden    = 'x'
)

// Record is a FHIR resource with its owner and name.
type Record struct {
	Type, ID, Name string
	Owner          byte
	JSON           string
}

// Reference returns the reference Type/id.
func (r Record) Reference() string { return r.Type + "/" + r.ID }

// World contains the records of several patients, and the shared and hidden records.
type World struct {
	Patients string // one letter for each patient
	Records  []Record

	byName map[string]int // index of the record by owner, type and name
}

// NewWorld creates the records of the given patients. Shared records come first, and targets of references precede their
// sources where possible.
func NewWorld(patients string) *World {
	w := &World{Patients: patients, byName: map[string]int{}}
	w.declare(ofEverybody, string(rune(Everybody)))
	w.declare(ofPatients, patients)
	w.declare(ofNobody, string(rune(Hidden)))
	for i := range w.Records {
		w.fill(&w.Records[i])
	}
	return w
}

// declare adds the records of a table once for each of the owners. Placeholders are not yet replaced.
func (w *World) declare(table, owners string) {
	for number, line := range strings.Split(strings.TrimSpace(table), "\n") {
		columns := strings.SplitN(line, "\t", 3)
		for _, owner := range []byte(owners) {
			r := Record{Type: columns[0], Name: columns[1], ID: Token(owner, number), Owner: owner, JSON: columns[2]}
			w.byName[key(owner, r.Type+"."+r.Name)] = len(w.Records)
			w.Records = append(w.Records, r)
		}
	}
}

func key(owner byte, name string) string { return string(owner) + " " + name }

var placeholder = regexp.MustCompile(`\{[A-Za-z0-9 .]+\}`)

// fill replaces the placeholders in the record's JSON.
func (w *World) fill(r *Record) {
	members := placeholder.ReplaceAllStringFunc(r.JSON, func(found string) string { return w.value(r, strings.Trim(found, "{}")) })
	if r.Type != "Binary" && r.Type != "Bundle" {
		members = w.value(r, "text") + members
	}
	r.JSON = fmt.Sprintf(`{"resourceType":%q,"id":%q,"meta":{"tag":[{"system":"http://zq.example/tags","code":%q}]},%s}`, r.Type, r.ID, r.ID+"m", members)
}

// value returns the value of a placeholder.
func (w *World) value(r *Record, word string) string {
	switch word {
	case "m":
		return r.ID + "m"
	case "m64":
		return base64.StdEncoding.EncodeToString([]byte(r.ID + "m"))
	case "i":
		return `"identifier":[{"system":"http://zq.example/ids","value":"` + r.ID + `m"}],`
	case "text":
		return `"text":{"status":"generated","div":"<div xmlns=\"http://www.w3.org/1999/xhtml\">` + r.ID + `m</div>"},`
	case "day":
		return Day(r.Owner)
	case "n":
		return fmt.Sprint(100 + int(r.Owner-'a'))
	}
	owner := r.Owner
	if name, ok := strings.CutPrefix(word, "next "); ok {
		at := strings.IndexByte(w.Patients, owner)
		word, owner = name, w.Patients[(at+1)%len(w.Patients)]
	} else if name, ok := strings.CutPrefix(word, "first "); ok {
		word, owner = name, w.Patients[0]
	}
	return w.Find(owner, word).Reference()
}

// Day returns a date that only this owner's records contain.
func Day(owner byte) string { return fmt.Sprintf("19%d-03-04", 40+int(owner-'a')) }

// Find returns the owner's record with the given type and name (separated by a dot). If the owner has no such record, it
// returns the shared or hidden one. It panics if there is no such record.
func (w *World) Find(owner byte, name string) Record {
	for _, o := range []byte{owner, Everybody, Hidden} {
		if at, ok := w.byName[key(o, name)]; ok {
			return w.Records[at]
		}
	}
	panic("no " + name)
}

// Patient returns the reference Patient/id of a patient.
func (w *World) Patient(letter byte) string { return w.Find(letter, "Patient.self").Reference() }

// Types returns the types of all records, sorted.
func (w *World) Types() []string {
	types := map[string]bool{}
	for _, r := range w.Records {
		types[r.Type] = true
	}
	return slices.Sorted(maps.Keys(types))
}

// Of returns all records of an owner.
func (w *World) Of(owner byte) []Record {
	var found []Record
	for _, r := range w.Records {
		if r.Owner == owner {
			found = append(found, r)
		}
	}
	return found
}
