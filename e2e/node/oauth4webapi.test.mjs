// The authorization server as npm oauth4webapi sees it: step by step, each
// answer checked by itself, the access token too (RFC 9068).
import assert from 'node:assert/strict';
import { before, test } from 'node:test';

import * as oauth from 'oauth4webapi';

import { expandGender, issuer, redirectURI, signIn } from './person.mjs';

const app = { client_id: 'demo-app' };
let server;

before(async () => {
	server = await discover('oidc');
});

async function discover(algorithm) {
	const url = new URL(issuer);
	return oauth.processDiscoveryResponse(url, await oauth.discoveryRequest(url, { algorithm }));
}

test('both discovery documents name the same endpoints', async () => {
	const other = await discover('oauth2'); // RFC 8414
	for (const name of ['issuer', 'authorization_endpoint', 'token_endpoint', 'jwks_uri']) {
		assert.equal(other[name], server[name]);
	}
	assert.deepEqual(server.code_challenge_methods_supported, ['S256']);
	assert.equal(server.authorization_response_iss_parameter_supported, true);
});

// tokens runs the code flow with PKCE.
async function tokens(scope) {
	const verifier = oauth.generateRandomCodeVerifier();
	const state = oauth.generateRandomState();
	const nonce = oauth.generateRandomNonce();
	const url = new URL(server.authorization_endpoint);
	url.search = new URLSearchParams({
		client_id: app.client_id,
		redirect_uri: redirectURI,
		response_type: 'code',
		scope,
		state,
		nonce,
		code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
		code_challenge_method: 'S256',
	});
	const parameters = oauth.validateAuthResponse(server, app, await signIn(url), state);
	const response = await oauth.authorizationCodeGrantRequest(server, app, oauth.None(), parameters, redirectURI, verifier);
	const openid = scope.split(' ').includes('openid');
	const result = await oauth.processAuthorizationCodeResponse(server, app, response, {
		expectedNonce: openid ? nonce : oauth.expectNoNonce,
		requireIdToken: openid,
	});
	if (openid) {
		await oauth.validateApplicationLevelSignature(server, response);
	}
	return result;
}

test('code flow, ID token with its signature, userinfo', async () => {
	const given = await tokens('openid profile email phone fhirUser user/*.rs');
	const claims = oauth.getValidatedIdTokenClaims(given);
	assert.equal(claims.fhirUser, `${issuer}/fhir/R4/Practitioner/alice`);

	const answer = await oauth.userInfoRequest(server, app, given.access_token);
	const user = await oauth.processUserInfoResponse(server, app, claims.sub, answer);
	assert.equal(user.phone_number, '+15550100');

	const expanded = await oauth.protectedResourceRequest(given.access_token, 'GET', expandGender);
	assert.equal((await expanded.json()).expansion.contains[0].display, 'Male');
});

test('without openid no ID token', async () => {
	assert.equal((await tokens('user/*.rs')).id_token, undefined);
});

test('the access token is one of RFC 9068', async () => {
	const { access_token } = await tokens('openid user/*.rs');
	const request = new Request(expandGender, { headers: { authorization: `Bearer ${access_token}` } });
	const claims = await oauth.validateJwtAccessToken(server, request, `${issuer}/fhir/R4`);
	assert.equal(claims.sub, 'alice');
	assert.equal(claims.client_id, 'demo-app');
	assert.deepEqual(claims.scope.split(' ').sort(), ['openid', 'user/*.rs']);
});

test('$expand without a token is a WWW-Authenticate challenge', async () => {
	await assert.rejects(
		oauth.protectedResourceRequest('not-a-token', 'GET', expandGender),
		(error) => error instanceof oauth.WWWAuthenticateChallengeError && error.cause[0].parameters.error === 'invalid_token',
	);
});

test('a wrong secret is invalid_client', async () => {
	const service = { client_id: 'demo-service' };
	const response = await oauth.clientCredentialsGrantRequest(server, service, oauth.ClientSecretBasic('wrong'), { scope: 'system/*.rs' });
	await assert.rejects(oauth.processClientCredentialsResponse(server, service, response), (error) =>
		error instanceof oauth.WWWAuthenticateChallengeError || error.error === 'invalid_client',
	);
	assert.equal(response.status, 401);
});
