package page

// Admin is what templates/admin.html shows: the page of administrators.
type Admin struct {
	Person Person    // who the administrator is
	Done   *Text     // what they have just done; nil for nothing
	Search string    // what the names have in them; "" for all
	Apps   AdminList // those that wait for approval first
	People AdminList // in the store
}

// AdminList is a list of apps or people.
type AdminList struct {
	Items []AdminItem // the first of them
	More  bool        // there are others
}

// AdminItem is an app or a person in a list.
type AdminItem struct {
	Name     string // the client_id, or the name to sign in with
	Title    string // what people see
	Note     *Text  // where it is kept
	Since    string // the date when it was added, or ""
	Problem  string // why it is not in force, in English
	Disabled bool   // a person who may not sign in
	Address  string // of its own page; "" if it has none
}

// AdminEntry is what templates/adminentry.html shows: an app or a person, or the form for a new one.
type AdminEntry struct {
	Request    string // sealed
	Seen       string // what tells whether it has changed meanwhile
	Kind       string // in the form
	App        bool   // it is no person
	New        bool   // it is to be added
	Registered bool   // an app that registered itself, which cannot be edited
	Waits      bool   // for approval
	Own        bool   // the administrator's own, which they cannot change
	Renews     bool   // it has a secret or password that can be made anew
	Problem    string // why it is not in force, in English

	Name  string // the client_id, or the name to sign in with
	Title string // what people see

	RedirectURIs string // of an app, one a line
	Scopes       string // that an app may be granted, one a line
	LaunchURI    string // where an EHR opens an app

	Groups   string // of a person, one a line
	FHIRUser string // a person's own resource
	Email    string // a person's address
	Disabled bool   // a person may not sign in
}

// AdminSecret is what templates/adminsecret.html shows, once.
type AdminSecret struct {
	Name   string // whose it is
	App    bool   // it is no person
	Secret string // the secret, or the password
}
