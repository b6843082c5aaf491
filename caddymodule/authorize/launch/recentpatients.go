package launch

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	maxRecentPatients  = 5
	recentPatientsTTL  = 7 * 24 * time.Hour // after the person's last choice
	maxIDLength        = 64                 // FHIR R4 §2.24.0.1
	recentPatientsKind = "recent-patients"
)

// recentPatients returns the list of the patients whom the person chose last. A later person with the same sub has another
// fhirUser and therefore another list.
func (ps *Patients) recentPatients(person Person) store.RecentList {
	key := store.Key(recentPatientsKind, person.Subject+"\x00"+person.FHIRUser)
	return store.RecentList{Store: ps.Store, Key: key, Max: maxRecentPatients, TTL: recentPatientsTTL}
}

// RecordChoice stores that a clinician has chosen a patient. Other people choose from a short list.
func (ps *Patients) RecordChoice(ctx context.Context, person Person, id string) error {
	if !person.isClinician() {
		return nil
	}
	_, err := ps.recentPatients(person).Add(ctx, fmt.Sprintf("%-*s", maxIDLength, id)) // items have equal length
	return err
}

// Recent returns the patients that a clinician chose last, latest first. It omits patients that the clinician may no longer see.
func (ps *Patients) Recent(ctx context.Context, person Person) (recent []Patient, err error) {
	ctx, cancel := context.WithTimeout(ctx, displayTimeout)
	defer cancel()
	ids, err := ps.recentPatients(person).Items(ctx, maxIDLength)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	for i := range ids {
		ids[i] = strings.TrimRight(ids[i], " ")
	}
	query := url.Values{"_id": {strings.Join(removeDuplicates(ids), ",")}, "_count": {strconv.Itoa(maxRecentPatients)}}
	found, _, err := ps.searchPatients(ctx, person, query)
	found = slices.DeleteFunc(found, func(p Patient) bool { return !slices.Contains(ids, p.ID) })
	slices.SortFunc(found, func(a, b Patient) int { return slices.Index(ids, a.ID) - slices.Index(ids, b.ID) })
	return found, err
}
