"""fomkit: how many training runs a day will that machine do, and how sure are we?"""
