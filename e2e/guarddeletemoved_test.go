package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// TestGuardDeleteMoved checks that a record is not deleted if it is moved to another patient between the guard's check and the
// deletion.
func TestGuardDeleteMoved(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	w := newTestPatients()
	h.store(t, w.records(`
		Patient {patient} "name":[{"family":"x"}]
		Patient {other} "name":[{"family":"x"}]`))
	f := frontOf(t, h.fhirAPI)
	g := startGuarded(t, "moved", f.fhirAPI)
	who := guardHolder{scope: "patient/*.cruds", patient: w.names["{patient}"]}
	for _, of := range sortedTypes[:9] {
		for _, moved := range []bool{false, true} {
			reference := of[0] + "/" + newUUID()
			record := func(patient string) string {
				return fmt.Sprintf(`{"resourceType":%q,"id":%q,%s{"reference":"Patient/%s"}}`, of[0], reference[len(of[0])+1:], of[1], patient)
			}
			h.send(t, http.MethodPut, reference, record(w.names["{patient}"])).is(t, http.StatusCreated)
			deletions := 0
			f.before = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodDelete {
					return false
				}
				if deletions++; moved && deletions == 1 {
					h.send(t, http.MethodPut, reference, record(w.names["{other}"])).is(t, http.StatusOK)
				}
				return false
			}
			a := g.send(t, who, http.MethodDelete, reference, "")
			f.before = nil
			status := h.send(t, http.MethodGet, reference, "").status
			if moved && (status != http.StatusOK || a.status < 400) || !moved && (status != http.StatusGone || a.status/100 != 2) {
				t.Errorf("%s, moved %t: status %d, then %d from the server: %.200s", of[0], moved, a.status, status, a.body)
			}
			var outcome struct{ ResourceType string }
			if len(a.body) > 0 && json.Unmarshal(a.body, &outcome) != nil {
				t.Errorf("%s: %.200s", of[0], a.body)
			}
		}
	}
}
