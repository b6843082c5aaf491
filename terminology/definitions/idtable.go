package definitions

import (
	"crypto/sha256"
	"encoding/hex"
)

// identified is a pointer to a definition.
type identified interface {
	comparable
	identity() *Definition
}

func (d *Definition) identity() *Definition { return d }

// idTable finds the definitions of one type by their ids, for reads, searches and operations on an instance. Packages use
// the same id for different definitions, and for versions of one: hl7.terminology has 208 ids of R4.
type idTable[D identified] struct{ layer[D] }

func (t *idTable[D]) over(beside bool) idTable[D] { return idTable[D]{t.layer.over(beside)} }

// claim adds a definition by its id. Of loaded definitions with the same id, the one loaded last keeps it. The others get an
// id with a hash of their canonicals, which does not depend on the order.
func (t *idTable[D]) claim(d D) {
	id := d.identity().ID
	if id == "" {
		return
	}
	if old, taken := t.own[id]; taken && old != d && t.base == nil {
		other := old.identity()
		other.ID = t.unused(other)
		t.put(other.ID, old)
	}
	t.put(id, d)
}

// release removes a definition that is replaced.
func (t *idTable[D]) release(d D) {
	if id := d.identity().ID; t.own[id] == d {
		delete(t.own, id)
	}
}

// maxID is the length of the longest id (R4 datatype id).
const maxID = 64

// unused returns another id for a definition.
func (t *idTable[D]) unused(d *Definition) (id string) {
	sum := sha256.Sum256([]byte(d.Canonical()))
	hash := hex.EncodeToString(sum[:])
	for digits := 8; digits < maxID; digits *= 2 {
		id = d.ID[:min(len(d.ID), maxID-1-digits)] + "-" + hash[:digits]
		if _, taken := t.own[id]; !taken {
			break
		}
	}
	return id
}
