package records

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// All returns the records, those that others refer to first. All have an id and a meta.
func All() [][]byte {
	records, dice := &collection{counts: map[string]int{}}, dice{rand.New(rand.NewPCG(4, 0x5eed))}
	registrar := &registrar{records}
	narrator := &narrator{dice, &clinician{records, dice}, &observer{records, dice}}
	registrar.staff()
	all := readPeople()
	for i, p := range all {
		p.id = fmt.Sprintf("p%02d", i+1)
		p.doctor = practitioners[i%3]
		registrar.patient(p, i)
		narrator.history(p)
	}
	registrar.group(practitioners[0], all)
	return records.texts
}

// collection is what has been made so far.
type collection struct {
	counts map[string]int // of what a patient has, by type
	texts  [][]byte
}

// add adds a resource that was last changed at a time.
func (c *collection) add(resourceType, id string, updated time.Time, members ...member) string {
	o := append(object{
		{"resourceType", resourceType},
		{"id", id},
		{"meta", object{{"versionId", "1"}, {"lastUpdated", updated.Format("2006-01-02T15:04:05.000Z")}}},
	}, members...)
	c.texts = append(c.texts, o.json())
	return resourceType + "/" + id
}

// addFor adds a resource of a patient, numbered among the patient's own of its type, such as p01-condition-2.
func (c *collection) addFor(p *patient, resourceType string, updated time.Time, members ...member) string {
	prefix := p.id + "-" + strings.ToLower(resourceType)
	c.counts[prefix]++
	return c.add(resourceType, fmt.Sprintf("%s-%d", prefix, c.counts[prefix]), updated, members...)
}
