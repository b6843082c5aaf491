package records

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// All returns the records, those that others refer to first. All have an id and a meta.
func All() [][]byte {
	m := &maker{random: rand.New(rand.NewPCG(4, 0x5eed)), counts: map[string]int{}}
	m.staff()
	for i, p := range readPeople() {
		p.id = fmt.Sprintf("p%02d", i+1)
		p.doctor = practitioners[i%3]
		m.patient(p, i)
		m.history(p)
	}
	return m.texts
}

// maker makes the records one after the other.
type maker struct {
	random *rand.Rand
	counts map[string]int // of what a patient has, by type
	texts  [][]byte
}

// add adds a resource that was last changed at a time.
func (m *maker) add(resourceType, id string, updated time.Time, members ...member) string {
	o := append(object{
		{"resourceType", resourceType},
		{"id", id},
		{"meta", object{{"versionId", "1"}, {"lastUpdated", updated.Format("2006-01-02T15:04:05.000Z")}}},
	}, members...)
	m.texts = append(m.texts, o.json())
	return resourceType + "/" + id
}

// addFor adds a resource of a patient, numbered among the patient's own of its type, such as p01-condition-2.
func (m *maker) addFor(p *patient, resourceType string, updated time.Time, members ...member) string {
	prefix := p.id + "-" + strings.ToLower(resourceType)
	m.counts[prefix]++
	return m.add(resourceType, fmt.Sprintf("%s-%d", prefix, m.counts[prefix]), updated, members...)
}

// chance is true as often as a probability says.
func (m *maker) chance(p float64) bool { return m.random.Float64() < p }

// around is a number near another one, with some decimals.
func (m *maker) around(middle, spread float64, decimals int) decimal {
	return decimal(fmt.Sprintf("%.*f", decimals, middle+(m.random.Float64()*2-1)*spread))
}
