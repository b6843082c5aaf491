package sample

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

func BenchmarkNewStore(b *testing.B) {
	for b.Loop() {
		s, err := NewStore(recordsOf(b)...)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(s.totalBytes), "bytes")
	}
}

// required maps each type to the elements that its records must have, because R4 requires them or apps use them.
var required = map[string][]string{
	"AllergyIntolerance": {"clinicalStatus", "verificationStatus", "code", "patient"},
	"Appointment":        {"status", "start", "end", "participant"},
	"Binary":             {"contentType", "securityContext", "data"},
	"CarePlan":           {"text", "status", "intent", "category", "subject", "goal"},
	"CareTeam":           {"status", "subject", "participant"},
	"Condition":          {"clinicalStatus", "verificationStatus", "category", "code", "subject", "onsetDateTime", "recordedDate"},
	"Coverage":           {"status", "type", "subscriberId", "beneficiary", "relationship", "period", "payor"},
	"DiagnosticReport":   {"status", "category", "code", "subject", "effectiveDateTime", "issued", "result"},
	"DocumentReference":  {"status", "type", "category", "subject", "date", "author", "content", "context"},
	"Encounter":          {"status", "class", "type", "subject", "period", "location", "serviceProvider"},
	"Goal":               {"lifecycleStatus", "description", "subject", "startDate", "target"},
	"Group":              {"type", "actual", "name", "member"},
	"Immunization":       {"status", "vaccineCode", "patient", "occurrenceDateTime", "primarySource"},
	"Location":           {"status", "name", "address", "managingOrganization"},
	"MedicationRequest":  {"status", "intent", "medicationCodeableConcept", "subject", "authoredOn", "requester", "dosageInstruction"},
	"Observation":        {"status", "category", "code", "subject", "effectiveDateTime", "performer"},
	"Organization":       {"identifier", "active", "name", "telecom", "address"},
	"Patient":            {"identifier", "name", "telecom", "gender", "birthDate", "address", "communication", "generalPractitioner"},
	"Practitioner":       {"identifier", "name", "telecom", "gender"},
	"Procedure":          {"status", "code", "subject", "performedPeriod"},
	"Provenance":         {"target", "recorded", "agent"},
	"RelatedPerson":      {"active", "patient", "relationship", "name"},
}

// today is the day on which the records were created.
const today = "2026-11-02"

var compressAnew = flag.Bool("update", false, "compress records.ndjson anew")

// The embedded records are equal to records.ndjson.
func TestRecordsCompressed(t *testing.T) {
	t.Parallel()
	readable, err := os.ReadFile("records.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	if *compressAnew {
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(4<<20))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("records.ndjson.zst", encoder.EncodeAll(readable, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if stored := append(bytes.Join(recordsOf(t), []byte("\n")), '\n'); !bytes.Equal(stored, readable) {
		t.Error("records.ndjson has changed: compress it with -update")
	}
}

// recordsOf returns the embedded records as JSON texts.
func recordsOf(t testing.TB) [][]byte {
	t.Helper()
	records, err := Records()
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// recordsByReference returns all decoded records by their reference, such as Patient/p01.
func recordsByReference(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, text := range recordsOf(t) {
		var r map[string]any
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		name := r["resourceType"].(string) + "/" + r["id"].(string)
		if all[name] != nil {
			t.Errorf("%s is duplicated", name)
		}
		all[name] = r
	}
	return all
}

// visit calls do for each object nested in a value.
func visit(value any, do func(map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		do(v)
		for _, member := range v {
			visit(member, do)
		}
	case []any:
		for _, element := range v {
			visit(element, do)
		}
	}
}

// There are records of each type, with the required elements. Every reference refers to an existing record.
func TestRecordsAreConsistent(t *testing.T) {
	t.Parallel()
	all, seen := recordsByReference(t), map[string]int{}
	for name, r := range all {
		resourceType := r["resourceType"].(string)
		seen[resourceType]++
		for _, element := range append([]string{"meta"}, required[resourceType]...) {
			if r[element] == nil {
				t.Errorf("%s has no %s", name, element)
			}
		}
		visit(r, func(o map[string]any) {
			if to, ok := o["reference"].(string); ok && all[to] == nil {
				t.Errorf("%s refers to %s, which is not there", name, to)
			}
			if to, ok := o["url"].(string); ok && all[to] == nil {
				t.Errorf("%s has an attachment %s, which is not there", name, to)
			}
		})
	}
	if types := slices.Sorted(maps.Keys(seen)); !slices.Equal(types, slices.Sorted(maps.Keys(required))) {
		t.Errorf("types %q", types)
	}
	if seen["Patient"] != 30 || all["Practitioner/alice"] == nil {
		t.Errorf("%d patients, Practitioner/alice %v", seen["Patient"], all["Practitioner/alice"])
	}
}

// Each code has a system and a display, and each measured value has a UCUM unit.
func TestCodesAreComplete(t *testing.T) {
	t.Parallel()
	for name, r := range recordsByReference(t) {
		visit(r, func(o map[string]any) {
			codings, _ := o["coding"].([]any)
			for _, c := range codings {
				coding := c.(map[string]any)
				system, _ := coding["system"].(string)
				if !strings.HasPrefix(system, "http://") && system != "urn:ietf:bcp:47" || coding["code"] == nil || coding["display"] == nil {
					t.Errorf("%s: coding %v", name, coding)
				}
			}
			if o["unit"] != nil && (o["system"] != "http://unitsofmeasure.org" || o["code"] == nil || o["value"] == nil) {
				t.Errorf("%s: quantity %v", name, o)
			}
		})
	}
}

// All events of a patient are within the patient's lifetime. Only appointments and plans are in the future.
func TestTimesAreWithinLifetime(t *testing.T) {
	t.Parallel()
	all := recordsByReference(t)
	for name, r := range all {
		about, _ := r["subject"].(map[string]any)
		if about == nil {
			continue
		}
		born := all[about["reference"].(string)]["birthDate"].(string)
		for _, element := range []string{"onsetDateTime", "recordedDate", "authoredOn", "effectiveDateTime", "issued", "date"} {
			if at, ok := r[element].(string); ok && (at < born || at[:10] > today) {
				t.Errorf("%s: %s is %s, for the birth date %s", name, element, at, born)
			}
		}
		if reasons, ok := r["reasonReference"].([]any); ok && r["authoredOn"] != nil {
			reason := all[reasons[0].(map[string]any)["reference"].(string)]
			if reason["onsetDateTime"].(string) > r["authoredOn"].(string) {
				t.Errorf("%s was ordered before the problem began", name)
			}
		}
		if meta := r["meta"].(map[string]any); meta["lastUpdated"].(string)[:10] > today {
			t.Errorf("%s was updated at %v", name, meta["lastUpdated"])
		}
	}
}

// No patient gets a medication to which the patient is allergic, or an analgesic that interacts with warfarin.
func TestMedicinesAreSafe(t *testing.T) {
	t.Parallel()
	has, everybody := map[string]bool{}, patients(t)
	for _, text := range recordsOf(t) {
		for _, substance := range []string{"penicillin", "amoxicillin", "warfarin", "ibuprofen"} {
			if !bytes.Contains(text, []byte(substance)) {
				continue
			}
			for _, p := range everybody {
				if bytes.Contains(text, []byte(fullName(p))) {
					has[fullName(p)+" "+substance] = true
				}
			}
		}
	}
	if len(has) < 5 {
		t.Errorf("only %v", has)
	}
	for _, p := range everybody {
		for a, b := range map[string]string{"penicillin": "amoxicillin", "warfarin": "ibuprofen"} {
			if has[fullName(p)+" "+a] && has[fullName(p)+" "+b] {
				t.Errorf("%s has %s and %s", fullName(p), a, b)
			}
		}
	}
}

// Measured values are plausible for outpatients.
func TestMeasuredValues(t *testing.T) {
	t.Parallel()
	bounds := map[string][2]float64{
		"8302-2": {55, 200}, "29463-7": {4, 130}, "39156-5": {12, 33}, "8867-4": {60, 90}, "8310-5": {36, 38.5},
		"2708-6": {95, 100}, "8480-6": {90, 150}, "8462-4": {50, 96}, "4548-4": {4, 9}, "718-7": {12, 16}, "6301-6": {0, 4},
	}
	checked := map[string]int{}
	for name, r := range recordsByReference(t) {
		visit(r, func(o map[string]any) {
			concept, _ := o["code"].(map[string]any)
			value, _ := o["valueQuantity"].(map[string]any)
			if concept == nil || value == nil {
				return
			}
			code := concept["coding"].([]any)[0].(map[string]any)["code"].(string)
			if b, ok := bounds[code]; ok {
				checked[code]++
				if v := value["value"].(float64); v < b[0] || v > b[1] {
					t.Errorf("%s: %s is %v", name, code, v)
				}
			}
		})
	}
	if len(checked) != len(bounds) {
		t.Errorf("values only for %v", checked)
	}
}

// There are resources in every category that scopes distinguish.
func TestCategories(t *testing.T) {
	t.Parallel()
	var all bytes.Buffer
	for _, text := range recordsOf(t) {
		all.Write(text)
	}
	for _, category := range []string{"problem-list-item", "encounter-diagnosis", "health-concern", "laboratory", "vital-signs", "social-history", "clinical-note", "assess-plan"} {
		if !bytes.Contains(all.Bytes(), []byte(`"code":"`+category+`"`)) {
			t.Errorf("no %s", category)
		}
	}
}

// Dates of birth are valid, and names are unique.
func TestPeople(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range patients(t) {
		born, err := time.Parse(time.DateOnly, p["birthDate"].(string))
		if seen[fullName(p)] || err != nil || p["birthDate"].(string) > today || !slices.Contains([]string{"female", "male", "other"}, p["gender"].(string)) {
			t.Errorf("%s, born on %s", fullName(p), born)
		}
		seen[fullName(p)] = true
	}
}

// patients returns all Patient records.
func patients(t *testing.T) (list []map[string]any) {
	t.Helper()
	for _, r := range recordsByReference(t) {
		if r["resourceType"] == "Patient" {
			list = append(list, r)
		}
	}
	return list
}

// fullName returns the name of a patient, such as Nora Ashby.
func fullName(patient map[string]any) string {
	name := patient["name"].([]any)[0].(map[string]any)
	return name["given"].([]any)[0].(string) + " " + name["family"].(string)
}
