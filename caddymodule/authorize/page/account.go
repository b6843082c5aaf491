package page

import (
	"html/template"
	"time"
)

// Account is what templates/account.html shows: a page of one's own.
type Account struct {
	Request  string           // sealed
	Person   Person           // whose page it is
	Done     *Text            // what they have just done; nil for nothing
	Apps     []AccountApp     // with access in their name
	Sessions []AccountSession // of theirs
	Factors  AccountFactors   // of theirs
}

// AccountApp is an app that has access.
type AccountApp struct {
	ID    string  // the client_id
	Name  string  // its title
	Since *Text   // when it was given access
	Used  *Text   // when it last used it; nil if unknown
	Keeps *Text   // until when it has it
	Scope []*Text // what to

	Records []AccountRecords // whose they are that it has access to
}

// AccountRecords are those of a patient that an app has access to.
type AccountRecords struct {
	Whose *Text  // in words
	Since *Text  // when access was given
	Until string // the date when it ends; "" for the end of the session
}

// AccountSession is a browser in which somebody is signed in.
type AccountSession struct {
	ID      string // the sid
	Device  *Text  // browser and system
	Since   *Text  // when they signed in
	By      string // the identity provider, or ""
	Network string // the network of the address
	Current bool   // it is this one
}

// AccountFactors are a person's second factors.
type AccountFactors struct {
	Local      bool             // they have them here
	Provider   string           // where else they sign in; "" if that is unknown
	Configured bool             // an authenticator app that cannot be removed here
	App        *Text            // when they enrolled one; nil for none
	Recovery   int              // codes that are left
	Any        bool             // there is a factor
	CanPasskey bool             // this site can have passkeys
	Passkeys   []AccountPasskey // oldest first
}

// AccountPasskey is a passkey.
type AccountPasskey struct {
	ID    string // of the credential
	Name  string // as the person calls it
	Added *Text  // when
	Used  *Text  // when it was last used; nil for never
}

// AppSetup is what templates/appsetup.html shows: how to enrol an authenticator app.
type AppSetup struct {
	Request string        // sealed
	Setup   string        // the new key, sealed
	QR      template.URL  // the key as a picture
	Secret  string        // the key in letters
	Wrong   bool          // the last code was
	Wait    time.Duration // until the next attempt
}

// PasskeySetup is what templates/passkeysetup.html shows.
type PasskeySetup struct {
	Request string   // sealed
	Name    string   // what it could be called
	Passkey *Passkey // the challenge
	Wrong   bool     // the last answer was
}

// RecoveryCodes is what templates/recoverycodes.html shows, once.
type RecoveryCodes struct {
	Codes []string // in the order in which they were made
	Done  *Text    // what brought them
}
