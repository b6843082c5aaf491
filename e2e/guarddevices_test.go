package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Everyone can read a device without a patient, but a user who is bound to a patient can't assign it to that patient.
func (g *guardTest) testDevices(t *testing.T) {
	w := writers(g.world)[0]
	own, other, free := g.world.Find(w.letter, "Device.own"), g.world.Find(g.world.Patients[0], "Device.own"), g.world.Find(w.letter, "Device.free")
	patient := g.world.Patient(w.letter)
	claimed := strings.Replace(free.JSON, `"status":`, fmt.Sprintf(`"patient":{"reference":%q},"status":`, patient), 1)
	freed := strings.Replace(own.JSON, fmt.Sprintf(`"patient":{"reference":%q},`, patient), "", 1)
	for _, test := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"read own", "GET", own.Reference(), "", 200},
		{"read another's", "GET", other.Reference(), "", 404},
		{"read an unassigned device", "GET", free.Reference(), "", 200},
		{"take over an unassigned device", "PUT", free.Reference(), claimed, 403},
		{"patch an unassigned device", "PATCH", free.Reference(), fmt.Sprintf(`[{"op":"add","path":"/patient","value":{"reference":%q}}]`, patient), 403},
		{"delete an unassigned device", "DELETE", free.Reference(), "", 403},
		{"change an unassigned device", "PUT", free.Reference(), free.JSON, 403},
		{"create an unassigned device", "POST", "Device", free.JSON, 403},
		{"take another's", "PUT", other.Reference(), strings.ReplaceAll(other.JSON, g.world.Patient(g.world.Patients[0]), patient), 404},
		{"give one's own up", "PUT", own.Reference(), freed, 403},
		{"give one's own up by a patch", "PATCH", own.Reference(), `[{"op":"remove","path":"/patient"}]`, 403},
		{"change one's own", "PUT", own.Reference(), withLanguage(own.JSON, "en"), 200},
		{"create one's own", "POST", "Device", own.JSON, 201},
		{"delete another's", "DELETE", other.Reference(), "", 404},
	} {
		var headers []string
		if test.method == http.MethodPatch {
			headers = []string{"Content-Type", "application/json-patch+json"}
		}
		if a := g.send(t, w.holder, test.method, test.path, test.body, headers...); a.status != test.status {
			t.Errorf("%s: %d, want %d: %.300s", test.name, a.status, test.status, a.body)
		}
	}
	g.testDeviceSearches(t, w, own.Reference(), free.Reference())
}

// testDeviceSearches searches for devices in ways that might also return other patients' devices.
func (g *guardTest) testDeviceSearches(t *testing.T, w guardWriter, own, free string) {
	for search, want := range map[string]string{
		"Device?_id=" + strings.TrimPrefix(own, "Device/") + "," + strings.TrimPrefix(free, "Device/"): own + " " + free,
		"Device?patient=" + g.world.Patient(g.world.Patients[0]):                                       "",
		"Device?patient:missing=true": free,
		"Device?_has:Observation:device:subject=" + g.world.Patient(g.world.Patients[0]):                                      "",
		"Observation?_id=" + g.world.Find(w.letter, "Observation.plain").ID + "&_include=Observation:device&_elements=device": own + " " + g.world.Find(w.letter, "Observation.plain").Reference(),
	} {
		matches, included, _ := g.pages(t, w.holder, search)
		found := references{}
		for _, reference := range slices.Concat(matches, included) {
			found[reference] = true
		}
		if found.String() != want {
			t.Errorf("%s finds %s, want %s", search, found, want)
		}
	}
}
