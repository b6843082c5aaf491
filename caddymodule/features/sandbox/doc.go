// Package sandbox is a feature for trying out SMART App Launch 2.2 with this gateway alone: a page that launches apps as an EHR
// does, and an app to launch. Both are off by default.
//
//	feature.go     Sandbox, the option launch_page; the app as a client, and its page with the script scripts/sandboxapp.js;
//	               localApp, the client of apps on the user's computer
//	launchpage.go  the page: choice of a patient and an app; the form
//
// The launch page is for signed-in users. It lists the patients that the user may choose ([launch.Patients]), which it reads
// with the user's rights. It launches apps only for these patients, so that an app cannot get a patient that is unavailable in
// a standalone launch.
//
// The app is an ordinary public client. Its script uses only standard features, and the guard handles its tokens like those of
// other apps.
package sandbox
