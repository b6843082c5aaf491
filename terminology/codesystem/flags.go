package codesystem

// Flags summarize a concept.
type Flags uint8

// The flags.
const (
	FlagAbstract     Flags = 1 << iota // property notSelectable is true
	FlagInactive                       // property inactive is true, or status is retired or inactive
	FlagDeprecated                     // status is deprecated, or deprecated is true or has a date
	FlagStatus                         // has a status that is not active
	FlagDesignated                     // has designations
	FlagExtended                       // has extensions
	FlagUserAssigned                   // property user-assigned is true: what it means, and so its display, is for users to say
)

// ToldFlags are those that say something about the concept itself.
const ToldFlags = FlagAbstract | FlagInactive | FlagDeprecated | FlagStatus
