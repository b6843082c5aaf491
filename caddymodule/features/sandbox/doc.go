// Package sandbox is a feature for trying out SMART App Launch 2.2 with this gateway alone: a page
// that launches apps as an EHR does, and an app to launch. Both are off by default.
//
//	feature.go     Sandbox, the option launch_page; the app as a client, and its page with the script scripts/sandboxapp.js;
//	               localApp, the client of apps on the user's computer
//	launchpage.go  the page: choice of a patient and an app; the form
//
// The launch page is for signed-in users. It lists the patients that the user may choose
// ([launch.Patients]), read with the user's own rights, and launches apps only for these:
// so no app gets a patient that a standalone launch would not give it.
//
// The app is an ordinary public client. Its script uses only the standard, and the guard
// treats its tokens like those of other apps.
package sandbox
