package store

import "slices"

// A store that several gateways share announces the changes of the kinds of entries that most
// requests read (see [KindOf]), so that a guarded request needs no round trip.
var (
	// MirroredKinds are those of which each gateway has all entries, at most two days old: what
	// was revoked. That there is none must be known as well.
	MirroredKinds = []string{"revoked", "cutoff"}

	// CachedKinds are those of which each gateway keeps what it has read, until a change is
	// announced: the people of identity providers, and clients that registered themselves.
	CachedKinds = []string{"account", "kept-account", "client"}

	// EndingKinds are those that a full store takes, so that people can always sign out, and
	// clients revoke what they have: what was revoked, and the lists that bound it for each
	// person.
	EndingKinds = []string{"revoked", "cutoff", "revocations", "ended-sessions"}

	// UnboundedKinds are those that a full store of several gateways takes: beside EndingKinds the
	// counts of wrong secrets, of which there is a fixed number.
	UnboundedKinds = append(slices.Clone(EndingKinds), "lockout")
)
